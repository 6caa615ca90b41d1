"""Everything that can go wrong, in one tree.

    PlaitError
    ├── InvalidInput             refused before a byte is written
    │   ├── InvalidValue         a value JSON cannot carry there and back (NaN, bytes, a wrong type)
    │   ├── TooDeep              nested beyond the limit
    │   ├── TooLarge             longer than the limit
    │   ├── DuplicateKey         an object names the same key twice
    │   ├── MalformedJson        not JSON at all
    │   ├── NotCanonical         JSON, but not the one spelling that is hashed
    │   ├── NotPortable          a workflow that no other process could find or make
    │   ├── UnknownKind          an event kind this Plait does not know
    │   ├── UnknownVersion       a body version this Plait does not know
    │   └── EndsAgree            both ends of a bisection are good, or both are bad
    ├── CommitmentBroken         bytes that do not hash to the id in the header or the chain
    ├── SessionError
    │   ├── WrongStatus          the session's status does not allow it
    │   │   └── HasMoved         it went to another store
    │   ├── StillArriving        a copy of it into this store has not ended
    │   ├── NotSettled           an open run or call, or a message without an answer
    │   ├── GateUnmet            a verdict that was required is missing, failed or out of date
    │   ├── MergeConflict        two branches say different things under one name
    │   ├── NoCommonBase         the sessions to merge share no place
    │   ├── UnknownPlace         the session has no such position
    │   ├── UnknownKey           no fact, pending work or text of that name
    │   ├── UnknownRevision      nothing is called that
    │   ├── AmbiguousRevision    several things are called that
    │   ├── NoHost               nothing is bound here that can run tools or place files
    │   ├── NoPrompt             no model was asked there, or its request is not recorded
    │   ├── RunOpen              a run of it is open, and has not ended
    │   ├── RunHeld              another process works on the run
    │   ├── RunLost              another process took the run, or ended it
    │   ├── QueueFull            a project has as many runs in the queue as it may
    │   ├── SessionInJob         a session is a part of a job that is not over
    │   ├── UnknownKept          no sessions are kept under this name
    │   ├── JobFailed            a job came to an end without the successes that it needs
    │   ├── JobPending           a job did not end in the time that its caller waits
    │   ├── TaskFailed           a submitted run failed, and is not tried again
    │   ├── TaskCancelled        a submitted run was cancelled
    │   ├── TaskPending          a submitted run did not end in the time that its caller waits
    │   ├── TurnFailed           a turn that another process took has no answer
    │   ├── TurnCircle           sessions would wait for turns of each other
    │   ├── KeyTaken             another message was sent under the key of a turn
    │   ├── NothingToResume      no run of it waits to be taken up again
    │   ├── NothingToDebug       no code of a program was at work at that step
    │   ├── NeedsWorkflow        the program of a run cannot be found by itself
    │   ├── ReplayDiverged       the program goes another way than the record
    │   ├── LeavesRecord         the program of a replay writes to a session that is not the run's
    │   ├── BisectAborted        a test of a bisection gave no verdict where one was needed
    │   ├── ScorerFailed         a scorer of an evaluation gave no verdict on a session
    │   ├── NothingToAccept      the program makes every recorded step: there is no change
    │   ├── ProgramFailed        the program raises an error while its record is replayed
    │   ├── NoRun                no run of it is open
    │   ├── NoEndedRun           no run of it has ended yet
    │   ├── UnknownAsk           it does not wait for such an answer, or not any more
    │   │   └── WrongAskKind     it waits for an answer of another kind
    │   ├── AlreadyAnswered      another answer came first
    │   ├── AskExpired           the time for an answer is over
    │   ├── MayNotApprove        the asking principal and agents cannot give the answer
    │   ├── BypassRefused        a run's code went around the session, and may not
    │   └── NotASession          a workflow was given, or gave, something else
    ├── WorkerError              workers of a cluster
    │   ├── WorkerNameTaken      another worker of that name serves the store
    │   └── UnknownWorker        no worker of that name serves the store
    ├── MemoryFault              memories
    │   ├── UnknownMemory        no such memory, or none that the reader may see
    │   ├── AmbiguousMemory      several ids begin like that
    │   ├── NoEvidence           no evidence was given, and no person is acting
    │   ├── NotEvidence          the event cannot be evidence
    │   ├── NoOwner              the session has no owner of that scope
    │   ├── MayNotDecide         its writer, code of a run and agents cannot approve a memory
    │   ├── NotRecalled          no recall of the run returned the memory
    │   ├── StalePlan            memories changed since the rollback was planned
    │   └── IndexFailed          an index did not answer
    ├── SetupError               something is missing or wrong before anything runs
    │   ├── BadTool              a function that cannot be a tool
    │   ├── NoModel              no model was named, or none is called that
    │   ├── MissingExtra         an optional package is not installed
    │   ├── PageMissing          the page of the viewer is not built into the package
    │   ├── FileUnwritten        a file that was asked for could not be written
    │   ├── MissingWeights       the file of a local model is not there
    │   ├── MissingKey           a credential is not set
    │   ├── MissingSetting       an address or a version that a model needs is not set
    │   ├── BadSettings          the file plait.toml cannot be used as it is
    │   ├── BadSecret            a value that cannot be kept out of the record
    │   └── ToolChanged          a server's tool is not the one that was accepted
    ├── WorkspaceError           files of a session
    │   ├── NotPlaced            the session has no files: it was not placed yet
    │   ├── NoSuchFile           nothing is there
    │   ├── NotAFile             a folder, a pipe or a device where a file is wanted
    │   ├── OutsideWorkspace     the path leads out of the workspace
    │   ├── FileWithheld         its content holds a secret, and was not recorded
    │   ├── EditRefused          the text to replace is not there, or is there several times
    │   └── NotApplied           files cannot be written to that folder
    ├── SandboxError             the sandboxes in which tools run
    │   ├── UnknownBackend       no backend is called that
    │   ├── IsolationMissing     this machine does not offer the isolation that is wanted
    │   ├── SandboxGone          it does not exist any more
    │   ├── SandboxBusy          another process works in it
    │   ├── SandboxFailed        the backend failed at its task
    │   ├── NotSupported         the backend cannot do that
    │   ├── EgressRefused        tools may not reach that address
    │   └── RequestFailed        a server did not answer, or not in time
    ├── ServerError              an MCP server or a receiver of spans failed, or is out of reach
    │   ├── ServerUnreachable    it could not be started or reached: nothing was called
    │   ├── ServerClosed         used after close()
    │   ├── ServerLost           it went away during a call: the outcome is not known
    │   ├── ServerSilent         it did not answer in time: the outcome is not known
    │   ├── CallFailed           it says that the call failed
    │   └── ToolGone             it does not offer the tool any more
    ├── EffectError              something was tried, and is on record
    │   ├── ToolFailed           a tool that the program used
    │   ├── ModelFailed          the model did not answer, after every attempt
    │   ├── ResultInvalid        the model's answer does not have the type that was asked for
    │   ├── ChoiceInvalid        the model chose none of the candidates
    │   ├── BudgetExceeded       the budget does not allow it
    │   ├── GuardRefused         a guard rejects the input or the answer of an agent
    │   ├── GuardFailed          a guard raised, or returned no verdict
    │   ├── InstructionFailed    the function that gives an agent its instruction failed
    │   ├── DelegationRefused    workflows that are tools of each other called each other too deep
    │   └── BranchFailed         a branch of a Parallel
    └── StoreError
        ├── NoStore              there is no store yet, and looking does not make one
        ├── BadAddress           no store can be opened at such an address
        ├── UntrustedStore       another user could have put a store there
        ├── NotAStore            the file there is something else
        │   └── SchemaAltered    its tables are not the ones that Plait makes
        ├── SchemaTooNew         written by a newer Plait
        ├── StoreUnsafe          the database cannot give the durability that is promised
        ├── StoreUnreachable     its server does not answer
        ├── StoreDenied          its server refuses this user
        ├── StoreReadOnly        its server takes no writes
        ├── NotMigrated          its tables are not there, or too old
        ├── EventsLost           a crash or a failover took back the end of a log
        ├── StoreReplaced        another server answers than when the store was opened
        ├── StoreRestored        restored from a dump: transaction ids began anew
        ├── StoreClosed          used after close()
        ├── StoreReentered       written to from inside a write
        ├── StoreBusy            other processes held the write lock for too long
        ├── StoreUnsettled       a transaction stays open, and commits before it cannot be told yet
        ├── DiskFull             no space; nothing was written
        ├── StoreFailed          the disk or the system refused
        │   └── OutcomeUnknown   it refused at the commit itself: the append may or may not stand
        ├── StoreCorrupt         the records contradict each other
        │   └── ContentGone      the content of an event is not there any more; its header is
        ├── StaleHead            another append came first
        ├── StaleEpoch           the run this belongs to was taken by another process, or ended
        ├── StaleReading         an event came first that bears on what is written
        ├── LogExists            the id is taken
        ├── LogsDiffer           two stores have other events in the same log
        ├── UnknownLog           no such log
        ├── UnknownEvent         no such event
        ├── UnknownBlob          no such blob
        ├── RowsBroken           a projection failed on an event that is committed
        └── UnknownRows          no such projection or table
            └── RowsTooNew       a newer version of the projection keeps them

Each error carries the thing that failed as attributes, and its text ends with the next step.
"""

from __future__ import annotations

from plait.errors.base import PlaitError, hide_with
from plait.errors.clusters import (
    JobFailed,
    JobPending,
    NotPortable,
    QueueFull,
    SessionInJob,
    TaskCancelled,
    TaskFailed,
    TaskPending,
    UnknownKept,
    UnknownWorker,
    WorkerError,
    WorkerNameTaken,
)
from plait.errors.effects import (
    BranchFailed,
    BudgetExceeded,
    ChoiceInvalid,
    DelegationRefused,
    EffectError,
    GuardFailed,
    GuardRefused,
    InstructionFailed,
    ModelFailed,
    ResultInvalid,
    ToolFailed,
)
from plait.errors.inputs import (
    CommitmentBroken,
    DuplicateKey,
    InvalidInput,
    InvalidValue,
    MalformedJson,
    NotCanonical,
    TooDeep,
    TooLarge,
    UnknownKind,
    UnknownVersion,
)
from plait.errors.memories import (
    AmbiguousMemory,
    IndexFailed,
    MayNotDecide,
    MemoryFault,
    NoEvidence,
    NoOwner,
    NotEvidence,
    NotRecalled,
    StalePlan,
    UnknownMemory,
)
from plait.errors.runs import (
    BisectAborted,
    EndsAgree,
    KeyTaken,
    LeavesRecord,
    NeedsWorkflow,
    NothingToAccept,
    NothingToDebug,
    NothingToResume,
    ProgramFailed,
    ReplayDiverged,
    RunHeld,
    RunLost,
    RunOpen,
    ScorerFailed,
    TurnCircle,
    TurnFailed,
)
from plait.errors.sandboxes import (
    EditRefused,
    EgressRefused,
    FileWithheld,
    IsolationMissing,
    NoSuchFile,
    NotAFile,
    NotApplied,
    NotPlaced,
    NotSupported,
    OutsideWorkspace,
    RequestFailed,
    SandboxBusy,
    SandboxError,
    SandboxFailed,
    SandboxGone,
    UnknownBackend,
    WorkspaceError,
)
from plait.errors.servers import (
    CallFailed,
    ServerClosed,
    ServerError,
    ServerLost,
    ServerSilent,
    ServerUnreachable,
    ToolGone,
)
from plait.errors.sessions import (
    AlreadyAnswered,
    AmbiguousRevision,
    AskExpired,
    BypassRefused,
    GateUnmet,
    HasMoved,
    MayNotApprove,
    MergeConflict,
    NoCommonBase,
    NoEndedRun,
    NoHost,
    NoPrompt,
    NoRun,
    NotASession,
    NotSettled,
    SessionError,
    StillArriving,
    UnknownAsk,
    UnknownKey,
    UnknownPlace,
    UnknownRevision,
    WrongAskKind,
    WrongStatus,
)
from plait.errors.setup import (
    BadSecret,
    BadSettings,
    BadTool,
    FileUnwritten,
    MissingExtra,
    MissingKey,
    MissingSetting,
    MissingWeights,
    NoModel,
    PageMissing,
    SetupError,
    ToolChanged,
)
from plait.errors.store_servers import (
    EventsLost,
    NotMigrated,
    StoreDenied,
    StoreReadOnly,
    StoreReplaced,
    StoreRestored,
    StoreUnreachable,
)
from plait.errors.stores import (
    BadAddress,
    ContentGone,
    DiskFull,
    LogExists,
    LogsDiffer,
    NoStore,
    NotAStore,
    OutcomeUnknown,
    RowsBroken,
    RowsTooNew,
    SchemaAltered,
    SchemaTooNew,
    StaleEpoch,
    StaleHead,
    StaleReading,
    StoreBusy,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreFailed,
    StoreReentered,
    StoreUnsafe,
    StoreUnsettled,
    UnknownBlob,
    UnknownEvent,
    UnknownLog,
    UnknownRows,
    UntrustedStore,
)

__all__ = (
    "NotPortable",
    "QueueFull",
    "TaskCancelled",
    "JobFailed",
    "JobPending",
    "SessionInJob",
    "UnknownKept",
    "TaskFailed",
    "TaskPending",
    "UnknownWorker",
    "WorkerError",
    "WorkerNameTaken",
    "EventsLost",
    "LeavesRecord",
    "AlreadyAnswered",
    "AmbiguousMemory",
    "AmbiguousRevision",
    "AskExpired",
    "BadAddress",
    "BadSecret",
    "BadSettings",
    "BadTool",
    "BisectAborted",
    "ScorerFailed",
    "BranchFailed",
    "BudgetExceeded",
    "BypassRefused",
    "CallFailed",
    "ChoiceInvalid",
    "CommitmentBroken",
    "DelegationRefused",
    "DiskFull",
    "DuplicateKey",
    "EditRefused",
    "EffectError",
    "EgressRefused",
    "EndsAgree",
    "FileWithheld",
    "GateUnmet",
    "HasMoved",
    "GuardFailed",
    "GuardRefused",
    "IndexFailed",
    "InstructionFailed",
    "InvalidInput",
    "InvalidValue",
    "IsolationMissing",
    "KeyTaken",
    "LogExists",
    "LogsDiffer",
    "MalformedJson",
    "MayNotApprove",
    "MayNotDecide",
    "MemoryFault",
    "MergeConflict",
    "MissingExtra",
    "PageMissing",
    "FileUnwritten",
    "MissingKey",
    "MissingSetting",
    "MissingWeights",
    "ModelFailed",
    "NeedsWorkflow",
    "NoCommonBase",
    "NoEndedRun",
    "NoEvidence",
    "NoHost",
    "NoModel",
    "NoOwner",
    "NoPrompt",
    "NoRun",
    "NoStore",
    "NoSuchFile",
    "NotAFile",
    "NotASession",
    "NotAStore",
    "NotApplied",
    "NotCanonical",
    "NotEvidence",
    "NotMigrated",
    "NotPlaced",
    "NotRecalled",
    "NotSettled",
    "NotSupported",
    "NothingToAccept",
    "NothingToDebug",
    "NothingToResume",
    "OutcomeUnknown",
    "OutsideWorkspace",
    "PlaitError",
    "ProgramFailed",
    "ReplayDiverged",
    "RequestFailed",
    "ResultInvalid",
    "RowsBroken",
    "RowsTooNew",
    "RunHeld",
    "RunLost",
    "RunOpen",
    "SandboxBusy",
    "SandboxError",
    "SandboxFailed",
    "SandboxGone",
    "SchemaAltered",
    "SchemaTooNew",
    "ServerClosed",
    "ServerError",
    "ServerLost",
    "ServerSilent",
    "ServerUnreachable",
    "SessionError",
    "SetupError",
    "StaleEpoch",
    "StaleHead",
    "StalePlan",
    "StaleReading",
    "StillArriving",
    "StoreBusy",
    "StoreClosed",
    "ContentGone",
    "StoreCorrupt",
    "StoreDenied",
    "StoreError",
    "StoreFailed",
    "StoreReadOnly",
    "StoreReentered",
    "StoreReplaced",
    "StoreRestored",
    "StoreUnreachable",
    "StoreUnsafe",
    "StoreUnsettled",
    "TooDeep",
    "TooLarge",
    "ToolChanged",
    "ToolFailed",
    "ToolGone",
    "TurnCircle",
    "TurnFailed",
    "UnknownAsk",
    "WrongAskKind",
    "UnknownBackend",
    "UnknownBlob",
    "UnknownEvent",
    "UnknownKey",
    "UnknownKind",
    "UnknownLog",
    "UnknownMemory",
    "UnknownPlace",
    "UnknownRevision",
    "UnknownRows",
    "UnknownVersion",
    "UntrustedStore",
    "WorkspaceError",
    "WrongStatus",
    "hide_with",
)

# One name per error, wherever its class stands: recorded tracebacks say `plait.errors.NoStore`.
for _name in __all__:
    globals()[_name].__module__ = __name__
