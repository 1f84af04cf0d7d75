"""Tests of how slices are handed out, to actors that fail by a script."""

import types
from unittest import mock

from absl.testing import absltest

from federated_hh.runtime.engines import ray_worker, slices

_CALL = ray_worker.Call(1, 1)


class _RayError(Exception):
    pass


class _TaskError(_RayError):
    def __init__(self, cause):
        super().__init__(str(cause))
        self.cause = cause


class _FakeRay:
    """Answers for tasks at once: with what a script has for them, or never."""

    exceptions = types.SimpleNamespace(RayError=_RayError, RayTaskError=_TaskError)

    def __init__(self):
        self.answers = {}
        self.killed = []

    def put(self, value):
        return value

    def wait(self, references, num_returns, timeout):
        del num_returns, timeout
        # The last first: results come in any order.
        ready = [r for r in reversed(references) if r in self.answers]
        return ready[:1], []

    def get(self, reference):
        answer = self.answers.pop(reference)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def kill(self, actor, no_restart):
        assert not no_restart
        self.killed.append(actor)


class _FakeActor:
    """Computes ten times a slice's number, unless a script says what else comes."""

    def __init__(self, ray, script=(), refusal=""):
        self.computed = []
        script = list(script)

        def begin(terms):
            del terms
            reference = object()
            ray.answers[reference] = refusal
            return reference

        def compute(call, kept, number):
            del call, kept
            reference = object()
            self.computed.append(number)
            answer = script.pop(0) if script else 10 * number
            if answer is not None:
                ray.answers[reference] = answer
            return reference

        self.begin = types.SimpleNamespace(remote=begin)
        self.compute = types.SimpleNamespace(remote=compute)


class SlicesTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.ray = _FakeRay()
        self.enter_context(mock.patch.dict("sys.modules", ray=self.ray))
        self.enter_context(mock.patch.object(slices, "_SECONDS_BETWEEN_LOOKS", 0))

    def actors(self, *handles, timeout=60.0):
        actors = slices.Actors(handles, None, timeout)
        actors.begin(60.0)
        return actors

    def test_in_order_and_each_once(self):
        handles = [_FakeActor(self.ray) for _ in range(3)]
        actors = self.actors(*handles)
        found = list(actors.map(_CALL, [], range(20)))
        self.assertEqual(found, [10 * n for n in range(20)])
        computed = [n for handle in handles for n in handle.computed]
        self.assertCountEqual(computed, range(20))

    def test_a_slice_of_a_lost_actor_is_computed_again(self):
        lost = _FakeActor(self.ray, [_RayError("it died"), _RayError("again")])
        actors = self.actors(lost, _FakeActor(self.ray))
        self.assertEqual(list(actors.map(_CALL, [], range(6))), [0, 10, 20, 30, 40, 50])

    def test_a_slice_that_fails_again_and_again(self):
        lost = _FakeActor(self.ray, [_RayError("it died")] * 10)
        actors = self.actors(lost)
        message = "failed 4 times.*it died.*--resume"
        with self.assertRaisesRegex(slices.EngineError, message):
            list(actors.map(_CALL, [], [0]))
        self.assertLen(lost.computed, slices.TRIES)

    def test_a_slice_that_takes_too_long(self):
        stopped = _FakeActor(self.ray, [None])
        other = _FakeActor(self.ray)
        actors = self.actors(stopped, other, timeout=0.05)
        self.assertEqual(list(actors.map(_CALL, [], range(4))), [0, 10, 20, 30])
        self.assertEqual(self.ray.killed, [stopped])

    def test_an_error_of_the_computation_is_no_failure_of_an_actor(self):
        wrong = _FakeActor(self.ray, [_TaskError(ValueError("above its bound")), None])
        actors = self.actors(wrong)
        with self.assertRaisesRegex(ValueError, "above its bound"):
            list(actors.map(_CALL, [], range(3)))
        self.assertLen(wrong.computed, 1)

    def test_what_comes_late_is_of_no_later_round(self):
        slow = _FakeActor(self.ray, [None])
        wrong = _FakeActor(self.ray, [_TaskError(ValueError("no"))])
        actors = self.actors(slow, wrong)
        with self.assertRaises(ValueError):
            list(actors.map(_CALL, [], range(2)))
        (late,) = actors._tasks
        self.ray.answers[late] = -1
        self.assertEqual(list(actors.map(_CALL, [], range(3))), [0, 10, 20])

    def test_an_actor_that_refuses(self):
        with self.assertRaisesRegex(slices.EngineError, "host: other code"):
            self.actors(_FakeActor(self.ray, refusal="host: other code"))

    def test_no_actor_comes_back(self):
        lost = _FakeActor(self.ray, [_RayError("it died")])
        actors = self.actors(lost)
        lost.begin = types.SimpleNamespace(remote=lambda terms: object())
        with (
            mock.patch.object(slices, "MENDING_SECONDS", 0.05),
            self.assertRaisesRegex(slices.EngineError, "all 1 workers are lost"),
        ):
            list(actors.map(_CALL, [], [0]))


if __name__ == "__main__":
    absltest.main()
