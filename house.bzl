"""How the packages of this house are built: a library a folder, and its programs.

A folder sees the packages that `deps` names and no other; Bazel refuses circles.
"""

load("@rules_python//python:defs.bzl", "py_binary", "py_library", "py_test")

def room(name, programs = [], deps = [], data = []):
    """A folder: its Python files as one library, and a target a program.

    Args:
      name: The library's: the folder's name.
      programs: Names of modules that can be run.
      deps: The packages that it imports.
      data: Other files that it reads, beside its own tables, pages and schemas.
    """
    py_library(
        name = name,
        srcs = native.glob(["*.py"]),
        data = data + native.glob(["*.csv", "*.html", "*.json", "*.toml"]),
        visibility = ["//visibility:public"],
        deps = deps,
    )
    for program in programs:
        py_binary(
            name = program,
            srcs = [program + ".py"],
            visibility = ["//visibility:public"],
            deps = [":" + name],
        )

def room_tests(folder, deps, large = [], data = []):
    """A test target for every file of a folder that ends in _test.py.

    Args:
      folder: Below this package.
      deps: What the tests import.
      large: Those that take more than a minute: paths in the folder, without ".py".
      data: Other files that they read.
    """
    for file in native.glob([folder + "/**/*_test.py"]):
        name = file[:-len(".py")]
        py_test(
            name = name,
            size = "large" if name[len(folder) + 1:] in large else "medium",
            srcs = [file],
            data = data,
            deps = deps + [":cases"],
        )
