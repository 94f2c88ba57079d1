//! The states of a replay in one process, and the events that change them.

/// Where a process is in the replay of its trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum State {
    /// The script has not called an intercepted library.
    #[default]
    Untouched,
    /// Calls are answered from the log: the next one was recorded before the checkpoint.
    Replaying,
    /// Calls are made and recorded.
    Live,
    /// The process ends, and records nothing any more.
    Closed,
    /// This process has no part in the trial: calls are made, and nothing is recorded.
    Inert,
}

/// What can happen to a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The first intercepted call opens the trial. `is_recorded`: calls were recorded before its
    /// checkpoint.
    Begin {
        /// See above.
        is_recorded: bool,
    },
    /// A call was answered from its record, or made again and compared with it. `is_last`: it is
    /// the last one before the checkpoint.
    Answer {
        /// See above.
        is_last: bool,
    },
    /// A call was made, and its result is recorded.
    Record,
    /// The script has reached its end. `is_recorded`: the trial has calls before a checkpoint.
    End {
        /// See above.
        is_recorded: bool,
    },
    /// The process ends.
    Close,
    /// The process is found to have no part in the trial.
    StandAside,
}

impl State {
    /// All states.
    pub const ALL: [Self; 5] = [
        Self::Untouched,
        Self::Replaying,
        Self::Live,
        Self::Closed,
        Self::Inert,
    ];

    /// The state after an event; `None` if the event cannot happen in this state.
    #[must_use]
    #[inline]
    #[expect(clippy::match_same_arms, reason = "they are rows of a table, by state")]
    pub const fn after(self, event: Event) -> Option<Self> {
        match (self, event) {
            // Nothing gives a process its part in the trial back.
            (Self::Inert, _) | (_, Event::StandAside) => Some(Self::Inert),
            (Self::Live | Self::Closed, Event::Close) | (Self::Closed, Event::End { .. }) => {
                Some(Self::Closed)
            }
            // What the script has not reached is still missing at its end.
            (_, Event::Close) => Some(self),

            (Self::Untouched, Event::Begin { is_recorded: true }) => Some(Self::Replaying),
            (Self::Untouched, Event::Begin { is_recorded: false }) => Some(Self::Live),
            // A script that does not reach the calls of its record has changed.
            (Self::Untouched, Event::End { is_recorded: false }) => Some(Self::Untouched),

            (Self::Replaying, Event::Answer { is_last: false }) => Some(Self::Replaying),
            (Self::Replaying, Event::Answer { is_last: true }) => Some(Self::Live),

            (Self::Live, Event::Record | Event::End { .. }) => Some(Self::Live),

            (
                Self::Untouched,
                Event::Answer { .. } | Event::Record | Event::End { is_recorded: true },
            )
            | (Self::Replaying, Event::Begin { .. } | Event::Record | Event::End { .. })
            | (Self::Live, Event::Begin { .. } | Event::Answer { .. })
            | (Self::Closed, Event::Begin { .. } | Event::Answer { .. } | Event::Record) => None,
        }
    }

    /// The name for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Untouched => "untouched",
            Self::Replaying => "replaying",
            Self::Live => "live",
            Self::Closed => "closed",
            Self::Inert => "inert",
        }
    }
}

impl Event {
    /// All events, with each value of their members.
    pub const ALL: [Self; 9] = [
        Self::Begin { is_recorded: false },
        Self::Begin { is_recorded: true },
        Self::Answer { is_last: false },
        Self::Answer { is_last: true },
        Self::Record,
        Self::End { is_recorded: false },
        Self::End { is_recorded: true },
        Self::Close,
        Self::StandAside,
    ];
}
