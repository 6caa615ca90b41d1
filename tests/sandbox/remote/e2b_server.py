"""E2B on loopback: the control plane and the daemon in each machine, as SDK 2.63 speaks to them."""

from __future__ import annotations

import re
from typing import Any

from tests.sandbox.remote.loopback import KEY, Envd
from tests.sandbox.remote.machine import Machine

_PATH = re.compile(r"(?:/v2)?/sandboxes/(?P<id>[^/]+)(?P<rest>(?:/[a-z]+)?)\Z")
_WHEN = "2026-11-16T00:00:00Z"


class E2BHandler(Envd):
    def serve(self) -> None:
        if name := self.headers.get("E2b-Sandbox-Id"):
            return self._inside(name)
        if self.headers.get("X-API-Key") != KEY:
            return self.answer(401, {"code": 401, "message": "unknown key"})
        if self.route == "/v2/sandboxes":
            return (
                self._create()
                if self.command == "POST"
                else self.answer(200, [self._listed(m) for m in self.cloud.machines.values()])
            )
        found = _PATH.match(self.route)
        machine = self.machine(found["id"]) if found else None
        if found is None or machine is None:
            return self.answer(404, {"code": 404, "message": "sandbox not found"})
        self._act(machine, self.command, found["rest"])

    def _inside(self, name: str) -> None:
        machine = self.machine(name)
        if machine is None or machine.paused:
            return self.answer(
                502, {"sandboxId": name, "message": "The sandbox was not found", "code": 502}
            )
        if self.headers.get("X-Access-Token") != f"token-{name}":
            return self.answer(401, {"code": "unauthenticated", "message": "no access"})
        self.serve_envd(machine)

    def _create(self) -> None:
        asked = self.json()
        if asked["templateID"] not in ("base", "other"):
            return self.answer(
                400, {"code": 400, "message": f"template {asked['templateID']} not found"}
            )
        machine = self.cloud.make()
        machine.template, machine.marks, machine.timeout_s = (
            asked["templateID"],
            asked["metadata"],
            asked["timeout"],
        )
        machine.network = asked["allow_internet_access"]
        self.answer(201, self._shown(machine))

    def _act(self, machine: Machine, verb: str, action: str) -> None:
        match verb, action:
            case "DELETE", "":
                del self.cloud.machines[machine.name]
                machine.end()
                self.answer(204)
            case "GET", "":
                self.answer(200, self._listed(machine))
            case "POST", "/connect":
                machine.resume()
                self.answer(200, self._shown(machine))
            case "POST", "/pause" if machine.paused:
                self.answer(409, {"code": 409, "message": "already paused"})
            case "POST", "/pause":
                machine.pause()
                self.answer(204)
            case "POST", "/timeout":
                machine.timeout_s = self.json()["timeout"]
                self.answer(204)
            case "POST", "/fork":
                other = self.cloud.make(machine.root)
                other.template, other.marks, other.network = (
                    machine.template,
                    machine.marks,
                    machine.network,
                )
                self.answer(201, [{"sandbox": self._shown(other)}])
            case _:
                self.answer(404, {"code": 404, "message": f"{verb} {action}"})

    def _shown(self, machine: Machine) -> dict[str, Any]:
        names = {"templateID": machine.template, "sandboxID": machine.name, "clientID": "loopback"}
        return {
            **names,
            "envdVersion": "0.6.3",
            "envdAccessToken": f"token-{machine.name}",
            "domain": None,
        }

    def _listed(self, machine: Machine) -> dict[str, Any]:
        size = {
            "cpuCount": 1,
            "memoryMB": 512,
            "diskSizeMB": 512,
            "startedAt": _WHEN,
            "endAt": _WHEN,
        }
        return {
            **self._shown(machine),
            **size,
            "state": "paused" if machine.paused else "running",
            "metadata": machine.marks,
        }
