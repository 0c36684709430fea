# SPDX-License-Identifier: Apache-2.0
"""Judges what a job writes from one pause to the next."""
import re

RANKS = r"ranks? ([0-9][0-9, -]*)"
HEAD = r"^\[kolo rank [0-9]+\] "
# Lines that give the reason why a session ended.
ERROR = re.compile(HEAD + r"(?:error|critical): |^rank [0-9]+ ends its session because of|"
                   + HEAD + r"warning: the session is over: ")
WARNING = re.compile(HEAD + "warning: ")
# The ranks of an exception.
NAMED = re.compile(r"^rank [0-9]+ ends its session because of \[([0-9 ]*)\]")
# Ranks in other lines that a report names as late, stopped or lost.
REPORTED = re.compile(rf"(?:missing|waits for|because|not submitted by|the process(?:es)? of) {RANKS}|"
                      rf"{RANKS}: (?:no response|stopped|ended|stuck)|"
                      rf"\brank ([0-9]+) (?:has sent nothing|left|is lost|\(process [0-9]+ on [^)]*\) is lost)")
STOPPED = re.compile(rf"{RANKS}: stopped")
# Ranks that, by a report, work or wait for others themselves.
EXCUSED = re.compile(rf"\|  {RANKS}: (?:executing|waiting in Kolo)")
LOST = re.compile(r"^kolorun: (?:the job has failed: )?rank [0-9]+ \(process ([0-9]+) on [^)]*\) is lost: ")
# A process that was started in the place of a lost one, and has no rank yet.
NEW_LOST = re.compile(r"^kolorun: a new process \([^)]*\) is lost: the agent on ")
SESSION = re.compile(r"^session of ([0-9]+) ranks from step")
# Lines that report no rank.
NEUTRAL = re.compile(r"^rank [0-9]+ ends well$|^[0-9]+ steps? (?:was|were) made while data was loaded$|^as replayed: |"
                     + HEAD + r"warning: (?:this rank leaves the session: an exception|flight record written)|"
                     # A process of another job is stopped while it holds the lock.
                     r"^\[kolo(?: rank [0-9]+)?\] warning: another process has held the lock of /tmp/kolo-|"
                     # By mpirun's event loop, while it ends a job.
                     r"^\[warn\] Epoll MOD|"
                     r"^kolorun: (?:the job has failed: )?(?:the agent on|host) |^kolorun on |^mpi(?:run|exec): Forwarding signal 18 to job$|^$")
ABORT = re.compile(r"^-+$|MPI_ABORT|^with errorcode|^NOTE: invoking|^You may or may not|^exactly when|"
                   r"more process(?:es)? ha|Set MCA parameter|^\[[^ ]+:[0-9]+\] ")


def numbers(text):
    """The ranks in text such as "0-1, 3"."""
    ranks = set()
    for part in re.findall(r"[0-9]+(?:-[0-9]+)?", text):
        first, _, last = part.partition("-")
        ranks.update(range(int(first), int(last or first) + 1))
    return ranks


def named_ranks(report):
    """The ranks that a report names as late, stopped or lost."""
    exception = NAMED.match(report)
    if exception:
        return numbers(exception[1])
    ranks = set()
    for match in REPORTED.finditer(report):
        ranks.update(*(numbers(group) for group in match.groups() if group))
    for match in EXCUSED.finditer(report):
        ranks -= numbers(match[1])
    return ranks


def reports(text):
    """Each line with the details that follow it."""
    report = []
    for line in text.splitlines():
        if line.startswith("  ") and report:
            report[-1] += "|" + line
        else:
            report.append(line)
    return report


class Judge:
    """What the job may write about a pause.

    `suspects`: the ranks that were stopped; an error names at least one of them. `behind`: ranks that it may name too.
    `ends`: whether the session may end. `killed`: process ids that must be reported as lost, and `may_be_lost`: those
    that may.
    """

    def __init__(self, suspects, ends, behind=(), killed=(), may_be_lost=()):
        self.suspects, self.behind, self.ends = set(suspects), set(behind), ends
        self.killed, self.may_be_lost = set(killed), set(may_be_lost)
        self.problems, self.lost = [], set()
        self.has_ended = False
        self.comes_to_the_end = False  # ranks that have left wait for others that compare their results

    def fail(self, why, report):
        self.problems.append(f"{why}: {report}")

    def read(self, text):
        for report in reports(text):
            self.read_report(report)
        if self.killed - self.lost:
            self.problems.append(f"nobody has missed the processes {sorted(self.killed - self.lost)}")

    def read_report(self, report):
        lost = LOST.match(report)
        if lost:
            self.read_loss(int(lost[1]), report)
        elif NEW_LOST.match(report):
            if not (self.ends or self.killed):
                self.fail("lost wrongly", report)
        elif ERROR.match(report):
            self.has_ended = True
            self.read_error(report)
        elif WARNING.match(report) and not NEUTRAL.match(report):
            self.read_warning(report)
        elif SESSION.match(report):
            if not (self.ends or self.killed):
                self.fail("another session", report)
        elif not NEUTRAL.match(report) and not ABORT.search(report):
            self.fail("unknown", report)

    def read_loss(self, process, report):
        self.lost.add(process)
        if process not in self.killed | self.may_be_lost:
            self.fail("lost wrongly", report)

    def read_error(self, report):
        named = named_ranks(report)
        if not self.ends and not self.killed:
            self.fail("ends a session", report)
        elif not named & self.suspects or not named <= self.suspects | self.behind:
            self.fail("names others", report)

    def read_warning(self, report):
        named = named_ranks(report)
        stopped = set().union(*(numbers(each) for each in STOPPED.findall(report)))
        if self.comes_to_the_end and "this rank has left the session and still waits" in report:
            return
        if "deadlock" in report:
            self.fail("deadlock", report)
        elif not stopped <= self.suspects:
            self.fail("stopped wrongly", report)
        elif not named | stopped:
            if not EXCUSED.search(report):  # else all ranks work, slowly
                self.fail("names nobody", report)
        elif not (named | stopped) & self.suspects:  # others may wait for a rank that is stopped, and are missed too
            self.fail("warns of others", report)
