"""Tests of the manifests for Kubernetes, and of a study's parts as jobs."""

import json
import pathlib
import re
import subprocess
import sys
from unittest import mock

import kubernetes_validate
import yaml
from absl.testing import absltest

from federated_hh.randomness import noise_keys
from federated_hh.run_directory import record as run_record
from studies import study_jobs
from tests import ROOT

_VERSION = "1.31"


def _manifest(name):
    (found,) = yaml.safe_load_all((ROOT / "configs" / name).read_text())
    return found


class ManifestTest(absltest.TestCase):
    def test_the_job_is_one(self):
        job = _manifest("kubernetes_study_job.yaml")
        kubernetes_validate.validate(job, _VERSION, strict=True)
        # The schema would find what is wrong.
        job["spec"]["completion"] = job["spec"].pop("completions")
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(job, _VERSION, strict=True)

    def test_the_job_runs_each_part(self):
        job = _manifest("kubernetes_study_job.yaml")["spec"]
        (container,) = job["template"]["spec"]["containers"]
        (script,) = container["args"]
        self.assertEqual(job["completionMode"], "Indexed")
        for begun in (False, True):
            scratch = pathlib.Path(self.create_tempdir().full_path)
            (scratch / "scripts").mkdir()
            run = scratch / "scripts" / "run"
            run.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
            run.chmod(0o755)
            if begun:
                (scratch / "runs" / "part-3").mkdir(parents=True)
                (scratch / "runs" / "part-3" / "run.json").touch()
            done = subprocess.run(
                [*container["command"], script.replace("/runs/", "runs/")],
                env={"JOB_COMPLETION_INDEX": "2", "PATH": "/usr/bin:/bin"},
                cwd=scratch,
                capture_output=True,
                text=True,
            )
            words = done.stdout.split()
            self.assertIn("--output_dir=runs/part-3", words, done.stderr)
            self.assertEqual("--resume" in words, begun)
            part = f"--study_part=3/{job['completions']}"
            self.assertEqual(part in words, not begun)

    def test_the_pods_of_the_ray_cluster_are_pods(self):
        cluster = _manifest("kubernetes_ray_cluster.yaml")
        requirement = re.search(
            r"^ray==(\S+)", (ROOT / "requirements-ray.in").read_text(), re.MULTILINE
        )
        self.assertEqual(cluster["spec"]["rayVersion"], requirement[1])
        groups = [cluster["spec"]["headGroupSpec"]]
        groups += cluster["spec"]["workerGroupSpecs"]
        for group in groups:
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}
            kubernetes_validate.validate(pod | group["template"], _VERSION, strict=True)
            for value in group["rayStartParams"].values():
                self.assertIsInstance(value, str)  # as KubeRay wants it


class SubmitPartsTest(absltest.TestCase):
    def test_what_a_job_does(self):
        folder = self.create_tempdir().full_path
        run = pathlib.Path(folder) / "part-2"
        asked = []

        def remember(command, **_):
            asked.append(command[command.index("scripts.reproduce") + 1 :])
            fails = int(len(asked) == 3)
            return subprocess.CompletedProcess(command, fails, stderr="error: x\n")

        key = noise_keys.NoiseKey.of_seed(1)
        record = run_record.new("t", [], {}, key) | {"schema_version": 4}
        done = {"status": "complete", "finished": "2026-01-01 00:00:00 +0000"}

        def job():
            study_jobs.run_part(["--study=x"], 2, 5, folder)

        with mock.patch.object(subprocess, "run", remember):
            job()
            run.mkdir()
            (run / "run.json").write_text(json.dumps(record))
            job()
            with self.assertRaisesRegex(RuntimeError, "ended with code 1: error: x"):
                job()
            (run / "run.json").write_text(json.dumps(record | done))
            job()
        place = f"--output_dir={run}"
        self.assertEqual(asked[0], ["--study=x", "--study_part=2/5", place])
        self.assertEqual(asked[1:], [["--resume", place]] * 2)

    def test_a_study_is_needed(self):
        done = subprocess.run(
            [sys.executable, "-m", "scripts.submit_parts", "--parts=2", "--folder=x"],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.returncode, 2)
        self.assertIn("error: give the study's flags after --", done.stderr)


if __name__ == "__main__":
    absltest.main()
