#!/usr/bin/env python3
"""The web page of `trireme serve` in a headless Chromium, on a small model that has learnt its answers.

usage: page_test.py TRIREME TRIREME_DATA [--only NAME,...] [--url URL] [--pictures DIR]

--only      cases by name; --url: a server that is running already, instead of one of its own (cases that start one are left out)
--pictures  a picture of the page where a case fails (default: next to the other files of the test, which then stay)
Exits with 1 and prints the failures.
"""
import argparse
import inspect
import os
import shutil
import sys
import tempfile
import time
import traceback

import chat_cases
import frame_cases
import markdown_view_cases
import server_cases
import taught
from browser import Page


class Cases:
    def __init__(self, arguments, work):
        self.arguments, self.work = arguments, work
        self.only = arguments.only.split(",") if arguments.only else None
        self.failed, self.done = [], 0

    def run(self, page, case, **values):
        if self.only and case.__name__ not in self.only:
            return
        start = time.monotonic()
        self.done += 1
        try:
            wanted = inspect.signature(case).parameters
            case(page, **{name: value for name, value in values.items() if name in wanted})
            print(f"passed  {case.__name__}  {time.monotonic() - start:.1f} s", flush=True)
        except Exception:  # any exception: the next case starts anew
            self.failed.append(case.__name__)
            picture = os.path.join(self.arguments.pictures or self.work, f"{case.__name__}.png")
            page.picture(picture)
            print(f"FAILED  {case.__name__}, as in {picture}\n{traceback.format_exc()}", flush=True)


def run_all(cases, url, serve):
    downloads = os.path.join(cases.work, "downloads")
    os.makedirs(downloads)
    page = Page(url, downloads)
    try:
        for case in markdown_view_cases.ALL + chat_cases.ALL + frame_cases.ALL + [frame_cases.nothing_leaves] + server_cases.ALL:
            cases.run(page, case, downloads=downloads)
        if serve:
            for case in server_cases.WITH_A_SERVER:
                cases.run(page, case, serve=serve)
    finally:
        page.close()
    if not cases.only or "chinese_browser" in cases.only:
        page = Page(url, downloads, language="zh-CN")
        try:
            cases.run(page, frame_cases.chinese_browser)
        finally:
            page.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trireme")
    parser.add_argument("trireme_data")
    parser.add_argument("--only")
    parser.add_argument("--url")
    parser.add_argument("--pictures")
    arguments = parser.parse_args()
    work = tempfile.mkdtemp()
    cases = Cases(arguments, work)
    servers = []
    try:
        if arguments.url:
            run_all(cases, arguments.url, None)
        else:
            run = taught.teach(arguments.trireme, arguments.trireme_data, work)

            def serve(*more):
                servers.append(taught.Serving(arguments.trireme, run, *more))
                return servers[-1]
            run_all(cases, serve().url, serve)
    finally:
        for server in servers:
            server.close()
        if not cases.failed:
            shutil.rmtree(work)
    print(f"{cases.done - len(cases.failed)} passed, {len(cases.failed)} failed: {' '.join(cases.failed)}")
    return 1 if cases.failed or not cases.done else 0


if __name__ == "__main__":
    sys.exit(main())
