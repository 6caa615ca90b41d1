"""CubeSandbox on loopback: its control plane, and the proxy that finds a machine by the host name
of the request.
"""

from __future__ import annotations

import re
from typing import Any

from tests.sandbox.remote.loopback import KEY, Envd
from tests.sandbox.remote.machine import Machine

_HOST = re.compile(r"49983-(?P<id>[^.]+)\.")
_PATH = re.compile(r"/sandboxes/(?P<id>[^/]+)(?P<rest>(?:/[a-z]+)?)\Z")


class CubeHandler(Envd):
    def serve(self) -> None:
        if self.headers.get("X-API-Key") != KEY:
            return self.answer(401, {"message": "unknown key"})
        if found := _HOST.match(self.headers.get("host", "")):
            return self._inside(found["id"])
        if self.route == "/sandboxes":
            return (
                self._create()
                if self.command == "POST"
                else self.answer(200, [self._shown(m) for m in self.cloud.machines.values()])
            )
        if self.route == "/snapshots" and self.command == "GET":
            return self.answer(
                200,
                [
                    self._snapshot(n, m)
                    for n, m in self.cloud.images.items()
                    if m.template == self.query.get("sandboxID")
                ],
            )
        if self.route.startswith("/templates/") and self.command == "DELETE":
            return self._forget(self.route.rpartition("/")[2])
        found = _PATH.match(self.route)
        machine = self.machine(found["id"]) if found else None
        if found is None or machine is None:
            return self.answer(404, {"message": "sandbox not found"})
        self._act(machine, self.command, found["rest"])

    def _inside(self, name: str) -> None:
        machine = self.machine(name)
        if machine is None or machine.paused:
            return self.answer(502, {"message": "no such machine"})
        self.serve_envd(machine)

    def _create(self) -> None:
        asked = self.json()
        image = self.cloud.images.get(asked["templateID"])
        if image is None and asked["templateID"] != "small":
            return self.answer(404, {"message": f"template {asked['templateID']} does not exist"})
        machine = self.cloud.make(image.root if image is not None else None)
        machine.template, machine.marks = asked["templateID"], asked.get("metadata") or {}
        machine.timeout_s, machine.network = (
            asked.get("timeout"),
            asked.get("allow_internet_access", True),
        )
        self.answer(201, self._shown(machine))

    def _act(self, machine: Machine, verb: str, action: str) -> None:
        match verb, action:
            case "DELETE", "":
                del self.cloud.machines[machine.name]
                machine.end()
                self.answer(204)
            case "GET", "":
                self.answer(200, self._shown(machine))
            case "POST", "/connect" | "/resume":
                machine.resume()
                self.answer(200, self._shown(machine))
            case "POST", "/pause":
                machine.pause()
                self.answer(204)
            case "POST", "/timeout":
                machine.timeout_s = self.json()["timeout"]
                self.answer(204)
            case "POST", "/snapshots":
                name = self.cloud.snapshot(machine)
                image = self.cloud.images[name]
                image.template, image.marks = machine.name, {"name": self.json().get("name", "")}
                self.answer(201, self._snapshot(name, image))
            case _:
                self.answer(405, {"message": f"{verb} {action}"})

    def _forget(self, name: str) -> None:
        image = self.cloud.images.pop(name, None)
        if image is None:
            return self.answer(404, {"message": "template not found"})
        image.end()
        self.answer(204)

    def _shown(self, machine: Machine) -> dict[str, Any]:
        state = "paused" if machine.paused else "running"
        return {
            "sandboxID": machine.name,
            "templateID": machine.template,
            "state": state,
            "metadata": machine.marks,
            "domain": "cube.app",
        }

    def _snapshot(self, name: str, image: Machine) -> dict[str, Any]:
        return {
            "snapshotID": name,
            "names": [image.marks["name"]] if image.marks.get("name") else [],
        }
