"""OpenSandbox on loopback: the lifecycle server, and in each container the daemon that runs
commands and moves files.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from socket import SHUT_RDWR
from typing import Any

from tests.sandbox.remote.loopback import KEY, Handler, ended, multipart, written
from tests.sandbox.remote.machine import Machine
from tests.sandbox.remote.standin_execd import event_line

_LIFE = re.compile(r"/v1/sandboxes/(?P<id>[^/]+)(?P<rest>.*)\Z")
_INSIDE = re.compile(r"/inside/(?P<id>[^/]+)(?P<rest>/.*)\Z")
_WHEN = "2026-11-16T00:00:00Z"


class OpenSandboxHandler(Handler):
    def serve(self) -> None:
        if found := _INSIDE.match(self.route):
            machine = self.machine(found["id"])
            if machine is None or machine.paused:
                self.close_connection = True
                # a container that is gone has no address
                return self.connection.shutdown(SHUT_RDWR)
            return self._inside(machine, found["rest"])
        if self.headers.get("OPEN-SANDBOX-API-KEY") != KEY:
            return self.answer(401, {"code": "UNAUTHORIZED", "message": "unknown key"})
        if self.route == "/v1/sandboxes":
            return self._create() if self.command == "POST" else self._list()
        found = _LIFE.match(self.route)
        machine = self.machine(found["id"]) if found else None
        if found is None or machine is None:
            return self.answer(
                404, {"code": "DOCKER::SANDBOX_NOT_FOUND", "message": "sandbox not found"}
            )
        self._act(machine, self.command, found["rest"])

    def _create(self) -> None:
        asked = self.json()
        if asked["image"]["uri"] not in ("ubuntu:24.04", "other:1"):
            return self.answer(
                404, {"code": "DOCKER::IMAGE", "message": f"no image {asked['image']['uri']}"}
            )
        machine = self.cloud.make()
        machine.template, machine.marks = asked["image"]["uri"], asked.get("metadata") or {}
        machine.timeout_s, machine.network = asked.get("timeout"), asked.get("networkPolicy")
        self.answer(202, self._shown(machine))

    def _list(self) -> None:
        items = [self._shown(machine) for machine in self.cloud.machines.values()]
        page = {
            "page": 1,
            "pageSize": 100,
            "totalItems": len(items),
            "totalPages": 1,
            "hasNextPage": False,
        }
        self.answer(200, {"items": items, "pagination": page})

    def _act(self, machine: Machine, verb: str, action: str) -> None:
        if action.startswith("/endpoints/"):
            return self.answer(200, {"endpoint": f"{self.headers['host']}/inside/{machine.name}"})
        match verb, action:
            case "DELETE", "":
                del self.cloud.machines[machine.name]
                machine.end()
                self.answer(204)
            case "GET", "":
                self.answer(200, self._shown(machine))
            case "POST", "/pause":
                machine.pause()
                self.answer(202)
            case "POST", "/resume":
                machine.resume()
                self.answer(202)
            case "POST", "/renew-expiration":
                machine.timeout_s = self.json()["expiresAt"]
                self.answer(200, {"expiresAt": machine.timeout_s})
            case _:
                self.answer(404, {"code": "UNKNOWN", "message": f"{verb} {action}"})

    def _inside(self, machine: Machine, route: str) -> None:
        match self.command, route:
            case "GET", "/ping":
                self.answer(200)
            case "POST", "/command":
                self.stream("text/event-stream", self._command(machine))
            case "POST", "/files/upload":
                self._upload(machine)
            case "GET", "/files/download":
                self.answer(
                    200,
                    content=machine.path(self.query["path"]).read_bytes(),
                    media_type="application/octet-stream",
                )
            case _:
                self.answer(404, {"code": "UNKNOWN", "message": route})

    def _command(self, machine: Machine) -> Iterator[bytes]:
        asked = self.json()
        process = machine.start(
            ["/bin/bash", "-c", asked["command"]], asked.get("envs") or {}, asked.get("cwd") or ""
        )
        with ended(process):
            yield from self._told(process)

    def _told(self, process: subprocess.Popen[bytes]) -> Iterator[bytes]:
        yield event_line("init", text=str(process.pid))
        for name, data in written(process):
            for line in data.decode().splitlines():  # the daemon tells lines, without their ends
                yield event_line(name, text=line)
        if code := process.wait():
            yield event_line(
                "error", error={"ename": "CommandExecError", "evalue": str(code), "traceback": []}
            )
        else:
            yield event_line("execution_complete", execution_time=1)

    def _upload(self, machine: Machine) -> None:
        parts = multipart(self.headers["content-type"], self.body)
        for (_, about), (_, content) in zip(parts[::2], parts[1::2], strict=True):
            path = machine.path(json.loads(about)["path"])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        self.answer(200)

    def _shown(self, machine: Machine) -> dict[str, Any]:
        status = {"state": "Paused" if machine.paused else "Running"}
        shown = {
            "id": machine.name,
            "status": status,
            "createdAt": _WHEN,
            "entrypoint": ["tail", "-f", "/dev/null"],
        }
        return {**shown, "image": {"uri": machine.template}, "metadata": machine.marks}
