#!/usr/bin/env python3
"""Tests of the check itself: arguments, budget, limits, the JSON document, exit codes, and the ELF editor. The parts are real processes."""
import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import driver
import elf
import part_fast
import part_machine
import part_serving
import part_speed
import parts
import peer_format
import places
import serve_load
from driver import Part
from part import Context, Failed, Skipped

CHECK = os.path.join(HERE, "check")
FIGURES = 'printf \'{"figures": {"half": 1}, "reason": ""}\' >"$1"; '


def shell(text):
    """Returns the command of a part; "$1" is its result file."""
    return ["sh", "-c", text, "part"]


class RunTest(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.work)
        self.path = os.path.join(self.work, "out.json")
        for name, value in (("GRACE_S", 0.5), ("RESERVE_S", 0.2)):  # shorter, for the test's own time
            self.addCleanup(setattr, driver, name, getattr(driver, name))
            setattr(driver, name, value)

    def run_parts(self, parts, budget_s=60, has_device=False):
        """(exit code, entries by name, document)"""
        with contextlib.redirect_stdout(io.StringIO()) as self.out, contextlib.redirect_stderr(io.StringIO()) as self.err:
            code = driver.run_parts(parts, self.path, budget_s, self.work, has_device, {"device": None})
        document = self.document()
        return code, {entry["name"]: entry for entry in document["parts"]}, document

    def document(self):
        with open(self.path, encoding="utf-8") as file:
            return json.load(file)

    def test_passed_and_failed_parts_give_exit_code_1(self):
        code, entries, document = self.run_parts([Part("good", "", shell(FIGURES), 10), Part("bad", "", shell("echo it broke; exit 3"), 10),
                                                  Part("crash", "", shell("kill -SEGV $$"), 10), Part("absent", "", ["/no/such/program"], 10)])
        self.assertEqual(code, 1)
        self.assertEqual(document["exit_code"], 1)
        self.assertIsNotNone(document["finished"])
        self.assertEqual((entries["good"]["status"], entries["good"]["figures"]), ("passed", {"half": 1}))
        self.assertEqual(entries["bad"]["status"], "failed")
        self.assertIn("exit code 3: it broke", entries["bad"]["reason"])
        self.assertIn("signal 11", entries["crash"]["reason"])
        self.assertEqual(entries["absent"]["status"], "failed")
        self.assertIn("cannot be started", entries["absent"]["reason"])

    def test_a_killed_part_keeps_its_figures_and_leaves_no_process(self):
        marker = f"{60 + os.getpid() / 1e6:.6f}"  # a sleep that nothing else has
        begin = time.monotonic()
        code, entries, _ = self.run_parts([Part("hangs", "", shell(FIGURES + f"trap '' TERM; sleep {marker} & sleep {marker}"), 1), Part("next", "", shell(""), 10)])
        self.assertLess(time.monotonic() - begin, 8)
        self.assertEqual(code, 1)
        self.assertEqual((entries["hangs"]["status"], entries["hangs"]["figures"]), ("failed", {"half": 1}))
        self.assertIn("killed after its limit of 1 s", entries["hangs"]["reason"])
        self.assertEqual(entries["next"]["status"], "passed")
        self.assertNotIn(marker, subprocess.run(["ps", "-eo", "args"], stdout=subprocess.PIPE, check=True).stdout.decode())

    def test_a_part_without_a_device_is_skipped_in_so_many_words(self):
        code, entries, _ = self.run_parts([Part("cpu", "", shell(""), 10), Part("gpu", "", shell("exit 1"), 10, needs_device=True)])
        self.assertEqual(code, 0)
        self.assertEqual((entries["gpu"]["status"], entries["gpu"]["reason"]), ("skipped", "no device"))
        self.assertIn("skipped: no device", self.out.getvalue())
        self.assertIn("1 passed, 0 failed, 1 skipped", self.out.getvalue())

    def test_a_part_that_needs_a_device_runs_if_there_is_one(self):
        code, entries, _ = self.run_parts([Part("gpu", "", shell(""), 10, needs_device=True)], has_device=True)
        self.assertEqual((code, entries["gpu"]["status"]), (0, "passed"))

    def test_all_skipped_is_no_success(self):
        code, entries, _ = self.run_parts([Part("gpu", "", shell(""), 10, needs_device=True),
                                           Part("own", "", shell('printf \'{"reason": "no compiler"}\' >"$1"; exit 77'), 10)])
        self.assertEqual(code, driver.EXIT_SKIPPED)
        self.assertEqual((entries["own"]["status"], entries["own"]["reason"]), ("skipped", "no compiler"))
        self.assertIn("every part was skipped", self.err.getvalue())

    def test_a_part_gets_its_limit(self):
        figures = 'printf \'{"figures": {"limit": %s}, "reason": ""}\' $' + driver.LIMIT_VARIABLE + ' >"$1"'
        _, entries, _ = self.run_parts([Part("long", "", shell(figures), 7)])
        self.assertEqual(entries["long"]["figures"], {"limit": 7})

    def test_the_budget_shortens_a_part_and_skips_those_behind_it(self):
        begin = time.monotonic()
        code, entries, _ = self.run_parts([Part("long", "", shell("sleep 30"), 100, least_s=0.1), Part("late", "", shell(""), 10)], budget_s=1)
        self.assertLess(time.monotonic() - begin, driver.RESERVE_S + 2)
        self.assertEqual(code, 1)
        self.assertIn("which the budget shortened from 100 s", entries["long"]["reason"])
        self.assertEqual(entries["late"]["status"], "skipped")
        self.assertIn("budget: 0 s of 1 s are left, the part needs 5 s or more", entries["late"]["reason"])

    def test_the_document_is_whole_while_a_part_runs_and_after_a_signal(self):
        program = ("import sys; sys.path.insert(0, sys.argv[1]); import driver\n"
                   "parts = [driver.Part('done', '', ['true'], 10), driver.Part('running', '', ['sh', '-c', 'sleep 60', 'part'], 50), driver.Part('later', '', ['true'], 10)]\n"
                   "sys.exit(driver.run_parts(parts, sys.argv[2], 100, sys.argv[3], False, {}))")
        process = subprocess.Popen([sys.executable, "-c", program, HERE, self.path, self.work], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        end = time.monotonic() + 10
        while not (os.path.exists(self.path) and self.document()["parts"][1]["status"] == "failed") and time.monotonic() < end:
            time.sleep(0.02)
        entries = self.document()["parts"]
        self.assertEqual([entry["status"] for entry in entries], ["passed", "failed", "skipped"])
        self.assertEqual([entry["reason"] for entry in entries], ["", driver.UNFINISHED, driver.NOT_RUN])
        time.sleep(1)  # the document says so just before the part's process begins
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=15)
        self.assertEqual(process.returncode, 1)
        self.assertIn(b"SIGTERM", err)
        document = self.document()
        self.assertEqual(document["exit_code"], 1)
        self.assertIn("ended together with the driver by SIGTERM", document["parts"][1]["reason"])


class ArgumentsTest(unittest.TestCase):
    def check(self, *words):
        done = subprocess.run([sys.executable, CHECK, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, timeout=60)
        return done.returncode, done.stderr.decode()

    def test_wrong_arguments_are_exit_code_2_and_name_what_is_allowed(self):
        for words, wanted in (((), "bundle"), (("run",), "--json"), (("run", "--only", "gpus", "--json", "x.json"), "gpus is no part. The parts are libraries, device"),
                              (("run", "--only", "", "--json", "x.json"), "no name is no part"), (("run", "--budget", "3", "--json", "x.json"), "must be 10 seconds or more"),
                              (("run", "--budget", "nan", "--json", "x.json"), "must be 10 seconds or more"), (("run", "--json", "/no/such/dir/x.json"), "cannot be written"),
                              (("bundle", "out.zip"), "must end with .tar.zst"), (("bundle", "/no/such/dir/out.tar.zst"), "does not exist")):
            with self.subTest(words=words):
                code, err = self.check(*words)
                self.assertEqual(code, 2, err)
                self.assertIn(wanted, err)


class FormatsTest(unittest.TestCase):
    def test_a_search_path_is_replaced_and_not_a_byte_else(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        path = os.path.join(folder, "program")
        if shutil.which("cc") is None:
            self.skipTest("no C compiler")
        subprocess.run(["cc", "-x", "c", "-", "-o", path, "-Wl,-rpath,/a/long/directory/of/libraries", "-Wl,--enable-new-dtags"], input=b"int main(void){return 7;}", check=True)
        size = os.path.getsize(path)
        self.assertTrue(elf.set_search_path(path, "$ORIGIN/../lib", transitive=True))
        self.assertEqual(os.path.getsize(path), size)
        text = subprocess.run(["readelf", "-d", path], stdout=subprocess.PIPE, check=True).stdout.decode()
        self.assertIn("(RPATH)              Library rpath: [$ORIGIN/../lib]", text)
        self.assertNotIn("RUNPATH", text)
        self.assertEqual(subprocess.run([path], check=False).returncode, 7)
        with self.assertRaises(elf.NoRoom):
            elf.set_search_path(path, "/" + 40 * "x", transitive=False)

    def test_safetensors_entries_have_their_bytes(self):
        header = json.dumps({"__metadata__": {"format": "pt"}, "b": {"dtype": "I32", "shape": [2], "data_offsets": [4, 12]},
                             "a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}).encode()
        data = len(header).to_bytes(8, "little") + header + bytes(range(12))
        self.assertEqual(list(peer_format.safetensors_entries(data)), [("b", "I32", [2], 8 + len(header) + 4, 8), ("a", "U8", [4], 8 + len(header), 4)])


class PartsTest(unittest.TestCase):
    """Parts read the output of a program, here of shell scripts."""

    def setUp(self):
        self.work = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.work)
        self.part = Context("fp8", "cpu", "small", self.work, os.path.join(self.work, "result"))

    def program(self, text):
        """Puts a shell script in the place of every program."""
        path = os.path.join(self.work, "program")
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n" + text)
        os.chmod(path, 0o755)
        self.addCleanup(setattr, places, "program", places.program)
        places.program = lambda name: path

    def fails(self, call, *words):
        with contextlib.redirect_stdout(io.StringIO()), self.assertRaises(Failed) as failed:
            call()
        for word in words:
            self.assertIn(word, str(failed.exception))

    def test_every_part_has_a_limit_below_the_budget_and_its_own_name(self):
        names = [row.name for row in parts.TABLE]
        self.assertEqual(len(set(names)), len(names))
        for row in parts.TABLE:
            self.assertLessEqual(row.least_s, row.limit_s)
            self.assertLessEqual(row.limit_s, 300)

    def test_a_program_without_the_command_fails_the_part(self):
        self.program("echo error: unknown command >&2; exit 2")
        for run, command in ((part_fast.kernels, "kernels"), (part_fast.ladder, "bench ladder")):
            self.fails(lambda run=run: run(self.part), f"has no command `{command}`", "exit code 2: error: unknown command")

    def test_a_test_program_without_such_a_test_fails_the_part(self):
        self.program('for word; do case $word in --gtest_output=json:*) echo \'{"testsuites": []}\' >"${word#*json:}";; esac; done')
        self.fails(lambda: part_fast.sync(self.part), "has no test with a name like *Sync*")

    def test_a_skipped_test_has_not_passed(self):
        test = {"name": "Test", "status": "RUN", "time": "0.5s"}
        one = {result: part_machine.result_of({**test, "result": result}) for result in ("COMPLETED", "SKIPPED", "SUPPRESSED")}
        self.assertEqual([(one[name]["passed"], one[name]["skipped"]) for name in one], [(True, False), (False, True), (False, False)])
        self.assertIn("SUPPRESSED", one["SUPPRESSED"]["failures"][0])
        broken = part_machine.result_of({**test, "result": "COMPLETED", "failures": [{"failure": "it broke"}]})
        self.assertEqual((broken["passed"], broken["failures"]), (False, ["it broke"]))
        gpu = Context("sync", "cuda", "small", self.work, os.path.join(self.work, "result"))
        part_machine.check_results(gpu, {"A.one": one["COMPLETED"], "A.two": one["SKIPPED"]})
        self.fails(lambda: part_machine.check_results(gpu, {"A.one": one["COMPLETED"], "B/0.two": one["SKIPPED"]}), "skipped although a device is here: B/0")
        self.fails(lambda: part_machine.check_results(gpu, {"A.one": broken}), "1 of 1 tests failed: A.one: it broke")
        part_machine.check_results(self.part, {"A.one": one["SKIPPED"]})

    def test_graphs_that_were_not_launched_fail_the_part(self):
        self.part.log = "one line\nCUDA graphs of micro-batches are off, and training continues: memory\n"
        self.fails(lambda: part_speed.check_launches(self.part, 7), "given up", "training continues: memory")
        self.part.log = "micro-batches of 4 x 128 tokens with up to 8 documents are launched as a CUDA graph\n"
        part_speed.check_launches(self.part, 7)
        for launches in (0, None):
            self.fails(lambda launches=launches: part_speed.check_launches(self.part, launches), "no micro-batch was launched")
        part_serving.check_launches(self.part, "serve", True, 3, "")
        part_serving.check_launches(self.part, "serve", False, 0, "")
        self.fails(lambda: part_serving.check_launches(self.part, "serve", True, 0, ""), "no decoding step was launched")
        self.fails(lambda: part_serving.check_launches(self.part, "serve", False, 3, ""), "must be 0")
        self.fails(lambda: part_serving.check_launches(self.part, "serve", True, 3, "decoding runs without CUDA graphs: experts"), "experts")

    def test_compiled_pytorch_is_left_out_if_too_little_time_is_left(self):
        self.addCleanup(setattr, shutil, "which", shutil.which)
        shutil.which = lambda name: "/usr/bin/cc"
        self.part.end = time.monotonic() + 70
        part_speed.compare_compiled(self.part, {}, "no-python", run_s=20)
        self.assertRegex(self.part.reason, "was not measured: (39|40) s are left for it, and it needs 45 s or more")

    def test_a_part_knows_its_limit(self):
        self.assertEqual(self.part.left_s(), float("inf"))
        os.environ[driver.LIMIT_VARIABLE] = "30"
        self.addCleanup(os.environ.pop, driver.LIMIT_VARIABLE)
        self.assertAlmostEqual(Context("fp8", "cpu", "small", self.work, self.part.result_path).left_s(), 30, delta=5)

    def test_the_part_gpu_tests_leaves_the_tests_of_other_parts_out(self):
        self.program('echo "$@" >"$0.words"; exit 3')
        self.fails(lambda: part_machine.gpu_tests(self.part), "exit code 3")
        with open(os.path.join(self.work, "program.words"), encoding="utf-8") as file:
            self.assertIn("--gtest_filter=-*Kernel*:*Sync*", file.read())

    def test_kernels_that_spill_or_are_empty_are_named(self):
        good = {"name": "rms_norm", "cubin_bytes": 900, "spill_bytes": 0}
        part_fast.check_kernels(self.part, [good])
        self.fails(lambda: part_fast.check_kernels(self.part, []), "lists no kernel")
        self.fails(lambda: part_fast.check_kernels(self.part, [good, {**good, "name": "rope", "spill_bytes": 8}]), "spill", "rope")
        self.fails(lambda: part_fast.check_kernels(self.part, [good, {**good, "name": "adamw", "cubin_bytes": 0}]), "not compiled", "adamw")

    def test_a_rung_with_another_loss_is_named(self):
        rungs = [{"off": "nothing", "step_time_s": 0.1, "loss_delta": 0.0}, {"off": "fused_norm", "step_time_s": 0.2, "loss_delta": -1e-3}]
        part_fast.check_rungs(self.part, rungs)
        self.fails(lambda: part_fast.check_rungs(self.part, rungs[:1]), "1 rungs")
        for wrong in ({"loss_delta": 0.5}, {"loss_delta": float("nan")}, {"step_time_s": 0}):
            self.fails(lambda wrong=wrong: part_fast.check_rungs(self.part, [rungs[0], {**rungs[1], **wrong}]), "['fused_norm']")

    def test_fp8_losses_must_be_near_bf16_and_not_equal(self):
        results = {mode: {"losses": losses, "step_time_s": 0.5} for mode, losses in
                   (("off", [2.0, 1.0]), ("near", [2.001, 1.0]), ("far", [2.0, 1.1]), ("same", [2.0, 1.0]))}
        for mode in ("off", "near"):
            part_fast.check_fp8(self.part, mode, results)
        self.fails(lambda: part_fast.check_fp8(self.part, "far", results), "fp8 far", "1.0e-01 from bf16")
        self.fails(lambda: part_fast.check_fp8(self.part, "same", results), "was not used")

    def test_a_device_without_fp8_must_refuse_it(self):
        self.program('echo "error: train.fp8 = tensorwise needs a GPU of compute capability 8.9 or later" >&2; exit 2')
        with self.assertRaises(Skipped):
            part_fast.refused(self.part, "set", {})
        self.program("exit 0")
        self.fails(lambda: part_fast.refused(self.part, "set", {}), "exit code 0, must be 2")

    def test_architectures_have_the_names_of_nvrtc(self):
        self.assertEqual([part_fast.architecture(value) for value in (8.0, 8.9, 9.0, 10.0)], ["sm_80", "sm_89", "sm_90a", "sm_100a"])

    def test_settings_become_toml(self):
        path = os.path.join(self.work, "a.toml")
        part_fast.write_toml(path, {"train.steps": 3, "model.preset": "tiny", "model.tie_embeddings": "true"})
        with open(path, encoding="utf-8") as file:
            self.assertEqual(file.read(), '[train]\nsteps = 3\n\n[model]\npreset = "tiny"\ntie_embeddings = true\n\n')

    def test_a_failed_request_ends_all_clients(self):
        def call(text, _):
            if text == "bad":
                raise OSError("refused")
            return 1
        self.assertEqual(sum(serve_load.by_clients(3, [("good", 1)] * 7, call)[0]), 7)
        with self.assertRaises(serve_load.NoAnswer):
            serve_load.by_clients(2, [("good", 1), ("bad", 1), ("good", 1)], call)


if __name__ == "__main__":
    unittest.main()
