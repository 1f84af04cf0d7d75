"""How the packages of this house are built: one library each, and its programs.

A package sees the packages below it and no other; `deps` says which.
"""

load("@rules_python//python:defs.bzl", "py_binary", "py_library", "py_test")

def room(name, programs = [], deps = [], data = [], visibility = None):
    """A package: all of its Python files as one library, and a target a program.

    Args:
      name: The library's: the package's name.
      programs: Names of modules that can be run.
      deps: The packages that it may import.
      data: Other files that it reads.
      visibility: Who may import it.
    """
    py_library(
        name = name,
        srcs = native.glob(["**/*.py"]),
        data = data,
        visibility = visibility,
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
      large: Names of those that take more than a minute.
      data: Other files that they read.
    """
    for file in native.glob([folder + "/**/*_test.py"]):
        name = file[:-len(".py")]
        py_test(
            name = name,
            size = "large" if name.split("/")[-1] in large else "medium",
            srcs = [file],
            data = data,
            deps = deps + [":cases"],
        )
