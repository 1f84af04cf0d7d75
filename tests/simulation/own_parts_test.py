"""Tests of parts by name: what is there, and what one clear line says of the rest."""

from absl.testing import absltest, parameterized

from simulation import own_parts


class OwnPartsTest(parameterized.TestCase):
    def test_functions(self):
        self.assertEqual(own_parts.load_function("--f", "math:sqrt", "a root")(9), 3)

    @parameterized.parameters(
        ("math", "--f is 'math'; it has to be module:function of a root"),
        ("no.such:f", "No module named 'no'"),
        ("math:root", "has no attribute 'root'"),
        ("math:pi", "--f is 'math:pi', which is a float; it has to be a root"),
    )
    def test_what_is_no_function(self, name, regex):
        with self.assertRaisesRegex(ValueError, regex):
            own_parts.load_function("--f", name, "a root")


if __name__ == "__main__":
    absltest.main()
