"""Windows Task Scheduler: a task at the person's logon, as XML.

Written and checked against the documented schema (version 1.2); it was not run by the tests, which have no Windows.
"""

import subprocess
from pathlib import Path
from xml.etree import ElementTree as ET

from crystal_node.agent.service.manager import NotInstalled, ServiceState, ServiceUnavailable, call, required
from crystal_node.agent.service.program import DESCRIPTION, Program
from crystal_node.base.home import write_private
from crystal_node.base.settings.user_session import Surroundings

NAMESPACE = "http://schemas.microsoft.com/windows/2004/02/mit/task"
_ATTEMPTS = 255
"""Restarts: the most that the schema allows."""


class TaskScheduler:
    """The scheduler, and the person's task (``Manager``)."""

    name = "Task Scheduler"

    def __init__(self, program: Program, surroundings: Surroundings) -> None:
        self._program = program
        self._surroundings = surroundings
        self._task = "\\Crystal\\" + program.named("Agent")

    @property
    def file(self) -> Path:
        return self._program.home / "state" / "agent" / "task.xml"

    def render(self) -> bytes:
        """A task has no environment variables, and no shell must set them: they become options of the command."""
        task = ET.Element("Task", {"version": "1.2", "xmlns": NAMESPACE})
        about = ET.SubElement(task, "RegistrationInfo")
        ET.SubElement(about, "Description").text = DESCRIPTION
        ET.SubElement(about, "URI").text = self._task
        triggers = ET.SubElement(task, "Triggers")
        logon = ET.SubElement(triggers, "LogonTrigger")
        ET.SubElement(logon, "Enabled").text = "true"
        user = self._user()
        if user:  # else it would start at every user's logon
            ET.SubElement(logon, "UserId").text = user
        principals = ET.SubElement(task, "Principals")
        principal = ET.SubElement(principals, "Principal", {"id": "Author"})
        if user:
            ET.SubElement(principal, "UserId").text = user
        ET.SubElement(principal, "LogonType").text = "InteractiveToken"
        ET.SubElement(principal, "RunLevel").text = "LeastPrivilege"
        settings = ET.SubElement(task, "Settings")
        for name, value in (
            ("MultipleInstancesPolicy", "IgnoreNew"),
            ("DisallowStartIfOnBatteries", "false"),
            ("StopIfGoingOnBatteries", "false"),
            ("AllowHardTerminate", "true"),
            ("StartWhenAvailable", "true"),
            ("RunOnlyIfNetworkAvailable", "false"),
            ("AllowStartOnDemand", "true"),
            ("Enabled", "true"),
            ("Hidden", "true"),
            ("RunOnlyIfIdle", "false"),
            ("WakeToRun", "false"),
            ("ExecutionTimeLimit", "PT0S"),
            ("Priority", "7"),
        ):
            ET.SubElement(settings, name).text = value
        again = ET.SubElement(settings, "RestartOnFailure")
        ET.SubElement(again, "Interval").text = "PT1M"
        ET.SubElement(again, "Count").text = str(_ATTEMPTS)
        actions = ET.SubElement(task, "Actions", {"Context": "Author"})
        action = ET.SubElement(actions, "Exec")
        ET.SubElement(action, "Command").text = self._program.command[0]
        given = [f"{name}={value}" for name, value in self._program.variables.items()]
        words = [*self._program.command[1:], *(word for pair in given for word in ("--with", pair))]
        ET.SubElement(action, "Arguments").text = subprocess.list2cmdline(words)
        ET.SubElement(action, "WorkingDirectory").text = str(self._program.home)
        ET.indent(task)
        text: bytes = ET.tostring(task, encoding="utf-16", xml_declaration=True)
        return text

    def install(self) -> str:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        write_private(self.file, self.render())
        self._do("/Create", "/TN", self._task, "/XML", str(self.file), "/F")
        return f"The task {self._task} is made. It runs while you are logged in."

    def start(self) -> None:
        if self.state() is ServiceState.ABSENT:
            raise NotInstalled("the agent of this home is not installed as a service")
        self._do("/Run", "/TN", self._task)

    def stop(self) -> None:
        self._do("/End", "/TN", self._task)

    def uninstall(self) -> None:
        try:
            if self.state() is not ServiceState.ABSENT:
                self._do("/End", "/TN", self._task, must=False)
                self._do("/Delete", "/TN", self._task, "/F")
        finally:
            self.file.unlink(missing_ok=True)

    def state(self) -> ServiceState:
        try:
            found = call(("schtasks", "/Query", "/TN", self._task, "/FO", "CSV", "/NH"), self._surroundings)
        except ServiceUnavailable:
            return ServiceState.UNREACHABLE if self.file.exists() else ServiceState.ABSENT
        if found.code:
            return ServiceState.ABSENT
        return ServiceState.RUNNING if '"Running"' in found.out else ServiceState.STOPPED

    def _user(self) -> str:
        known = self._surroundings.environment
        name, domain = known.get("USERNAME", ""), known.get("USERDOMAIN", "")
        return f"{domain}\\{name}" if name and domain else name

    def _do(self, *words: str, must: bool = True) -> None:
        (required if must else call)(("schtasks", *words), self._surroundings)
