//! Signals that ask for the end of the run: SIGTERM, and SIGUSR1 (the notice of Slurm) if the
//! script has no handler for it.
//!
//! From the first intercepted call on, our handler is in front of the handler that was there
//! before. It does not end the process. It notes the signal; the hooks take a checkpoint at the end
//! of the running batch, when the state is complete; and then the signal acts ([`act`]) through the
//! previous handler: the process dies of it, or a handler of the script runs. The signal acts at
//! once
//!
//! - if there is nothing to wait for: before the first batch of this process was trained, and
//!   therefore also in a replay, and in a run that takes no checkpoints;
//! - after `--grace` seconds, because a batch may be long and a disk slow: a timer sends the signal
//!   again;
//! - if it comes a second time, a second or more after the first. Two that come together count as
//!   one: a signal to the process group reaches the trial process directly, and again through the
//!   supervisor;
//! - if the script sent it to itself.
//!
//! Python does not see this handler: `signal.getsignal` and similar functions return what Python
//! itself installed. A handler that the script installs later is in front of ours until [`refresh`]
//! notices it, and moves ours to the front again. A signal that the script ignores is left alone.
//! In a forked child, the previous handler is put back; a program that is executed has the default,
//! as usual.
//!
//! Everything that the handler calls is async-signal-safe: atomics and system calls.

#![allow(
    unsafe_code,
    reason = "a handler of C runs at any time and in any thread, which no safe interface allows"
)]

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicPtr, Ordering};

use libc::{sigaction, siginfo_t, sigset_t};

/// Signals of one request that come together arrive within this time.
const TOGETHER_NS: i64 = 1_000_000_000;

/// How often the handlers are checked for changes by the script.
const REFRESH_MS: i64 = 100;

/// How a shell counts a death by signal as an exit code.
const SIGNAL_BASE: c_int = 128;

/// The process that this module works for; 0 before the first call of `watch`, and in a forked
/// child.
static OWNER: AtomicI32 = AtomicI32::new(0);
static GRACE_NS: AtomicI64 = AtomicI64::new(0);
/// Whether a batch was trained, so that there is something to wait for and to save.
static HAS_TRAINED: AtomicBool = AtomicBool::new(false);
/// Whether a checkpoint can be taken at all.
static KEEPS: AtomicBool = AtomicBool::new(true);
/// The signal that waits for the end of a batch; 0: none.
static PENDING: AtomicI32 = AtomicI32::new(0);
/// When that signal came, on the monotonic clock; 0: none waits.
static PENDING_SINCE_NS: AtomicI64 = AtomicI64::new(0);
/// The last signal that came, in any case; 0: none.
static RECEIVED: AtomicI32 = AtomicI32::new(0);
/// The last signal that was passed to a handler of the script and not yet reported; 0: none.
static HANDED: AtomicI32 = AtomicI32::new(0);
/// Whether `PENDING` or `HANDED` is set: the only thing that a batch checks.
static CALLS: AtomicBool = AtomicBool::new(false);
/// When the handlers were last checked, in milliseconds of the caller's clock.
static REFRESHED_MS: AtomicI64 = AtomicI64::new(i64::MIN);

static WATCHED: [Watched; 2] = [
    Watched::new(libc::SIGTERM, true),
    Watched::new(libc::SIGUSR1, false),
];

/// One signal.
struct Watched {
    number: c_int,
    /// Whether a handler of the script waits for the end of the batch as well.
    holds_back_handlers: bool,
    /// The previous handler; null if ours is not installed. Never freed: a handler may be reading
    /// it.
    below: AtomicPtr<sigaction>,
    /// The timer of the kernel that sends the signal again; -1: none yet.
    timer: AtomicI32,
}

// -- for the hooks --------------------------------------------------------------------------------

/// Puts our handler in front of those that are installed in this process. `grace_s` is the longest
/// wait, in seconds.
pub(crate) fn watch(grace_s: f64) {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a wait of 292 years is long enough"
    )]
    GRACE_NS.store((grace_s * 1e9) as i64, Ordering::SeqCst);
    OWNER.store(own_process(), Ordering::SeqCst);
    for watched in &WATCHED {
        watched.get_in_front();
    }
}

/// A batch was trained, not answered. Moves our handlers in front of those that the script has
/// installed since.
#[inline]
pub(crate) fn trained(now_s: f64) {
    if !HAS_TRAINED.load(Ordering::Relaxed) {
        HAS_TRAINED.store(true, Ordering::SeqCst);
    }
    refresh(now_s);
}

/// Nothing of this run can be saved: signals act at once.
pub(crate) fn keep_nothing() {
    KEEPS.store(false, Ordering::SeqCst);
}

/// Whether a signal waits, or was passed to the script.
#[inline]
pub(crate) fn calls() -> bool {
    CALLS.load(Ordering::Relaxed)
}

/// The signal that waits; 0: none.
pub(crate) fn pending() -> i32 {
    PENDING.load(Ordering::SeqCst)
}

/// The signal that was passed to a handler of the script; 0: none.
pub(crate) fn handed() -> i32 {
    HANDED.load(Ordering::SeqCst)
}

/// The last signal that came, in any case; 0: none.
pub(crate) fn received() -> i32 {
    RECEIVED.load(Ordering::SeqCst)
}

/// The signal that was passed to the script has been reported.
pub(crate) fn told() {
    HANDED.store(0, Ordering::SeqCst);
    update_calls();
}

/// Lets the waiting signal act. Returns if the script has a handler, which Python will run.
pub(crate) fn act() {
    let number = take_pending();
    if let Some(watched) = Watched::of(number) {
        watched.act();
    }
}

/// The script has ended: a signal that still waits never acts. Returns that signal; 0: none.
pub(crate) fn outlive() -> i32 {
    keep_nothing();
    take_pending()
}

/// Ends the process by a signal, whatever handler it has.
pub(crate) fn die_of(number: i32) -> ! {
    let mut default = empty_action();
    default.sa_sigaction = libc::SIG_DFL;
    set_action(number, &default);
    raise(number);
    exit(number)
}

/// In a forked child: restores the handlers as if ours had never been installed.
pub(crate) fn forget() {
    if OWNER.swap(0, Ordering::SeqCst) == 0 {
        return;
    }
    take_pending();
    for watched in &WATCHED {
        watched.get_out();
    }
}

/// Checks at intervals whether the script has installed handlers in front of ours, and moves ours
/// in front of them.
#[inline]
fn refresh(now_s: f64) {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "milliseconds since the machine was started"
    )]
    let now_ms = (now_s * 1e3) as i64;
    if now_ms
        >= REFRESHED_MS
            .load(Ordering::SeqCst)
            .saturating_add(REFRESH_MS)
    {
        REFRESHED_MS.store(now_ms, Ordering::Relaxed);
        if OWNER.load(Ordering::SeqCst) != 0 {
            for watched in &WATCHED {
                watched.get_in_front();
            }
        }
    }
}

// -- the handler ----------------------------------------------------------------------------------

/// The kernel calls this function.
extern "C" fn handle(number: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let Some(watched) = Watched::of(number) else {
        return;
    };
    // SAFETY: It has no preconditions.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: It is the address of this thread's `errno`, which is always valid.
    let before = unsafe { *errno };
    // SAFETY: The kernel gives a handler with `SA_SIGINFO` a valid one.
    if is_due(watched, unsafe { &*info }) {
        watched.pass_on(info, context);
    }
    // SAFETY: As above.
    unsafe { *errno = before };
}

/// Whether a signal acts now.
fn is_due(watched: &Watched, info: &siginfo_t) -> bool {
    let (number, owner) = (watched.number, OWNER.load(Ordering::SeqCst));
    let own = own_process();
    if owner != own {
        // A child that was forked without Python noticing.
        return true;
    }
    let code = info.si_code;
    if code == libc::SI_TIMER && is_of_timer(watched, info) {
        // A late one belongs to a signal that has acted since.
        return PENDING.load(Ordering::SeqCst) == number && take_pending() == number;
    }
    RECEIVED.store(number, Ordering::SeqCst);
    // SAFETY: The member exists for every signal that a process sent; for others it is some number.
    let sender = unsafe { info.si_pid() };
    let is_own = matches!(code, libc::SI_USER | libc::SI_TKILL | libc::SI_QUEUE) && sender == own;
    let may_wait = HAS_TRAINED.load(Ordering::SeqCst)
        && KEEPS.load(Ordering::SeqCst)
        && HANDED.load(Ordering::SeqCst) == 0
        && GRACE_NS.load(Ordering::SeqCst) > 0;
    if is_own || !may_wait {
        return true;
    }
    let now_ns = now_ns();
    // Another signal may be handled at this moment, in another thread.
    let first = PENDING_SINCE_NS.compare_exchange(0, now_ns, Ordering::SeqCst, Ordering::SeqCst);
    let Err(since_ns) = first else {
        PENDING.store(number, Ordering::SeqCst);
        CALLS.store(true, Ordering::SeqCst);
        watched.set_timer(GRACE_NS.load(Ordering::SeqCst));
        return false;
    };
    let is_second = now_ns - since_ns >= TOGETHER_NS;
    if is_second {
        take_pending();
    }
    is_second
}

/// Takes the waiting signal, and stops its timer.
fn take_pending() -> c_int {
    let number = PENDING.swap(0, Ordering::SeqCst);
    // Must come before the next signal can begin to wait: this would stop the timer of that one.
    if let Some(watched) = Watched::of(number) {
        watched.set_timer(0);
    }
    PENDING_SINCE_NS.store(0, Ordering::SeqCst);
    update_calls();
    number
}

/// `PENDING` or `HANDED` has been taken. A signal that comes meanwhile is not missed.
fn update_calls() {
    CALLS.store(false, Ordering::SeqCst);
    if pending() != 0 || handed() != 0 {
        CALLS.store(true, Ordering::SeqCst);
    }
}

fn note_handed(number: c_int) {
    HANDED.store(number, Ordering::SeqCst);
    CALLS.store(true, Ordering::SeqCst);
}

impl Watched {
    const fn new(number: c_int, holds_back_handlers: bool) -> Self {
        Self {
            number,
            holds_back_handlers,
            below: AtomicPtr::new(ptr::null_mut()),
            timer: AtomicI32::new(-1),
        }
    }

    fn of(number: c_int) -> Option<&'static Self> {
        WATCHED.iter().find(|watched| watched.number == number)
    }

    /// Installs our handler in front of the current one, if that is to be held back.
    fn get_in_front(&self) {
        let Some(current) = action_of(self.number) else {
            return;
        };
        let is_default = current.sa_sigaction == libc::SIG_DFL;
        let is_wanted = is_default || self.holds_back_handlers;
        if is_ours(&current) || current.sa_sigaction == libc::SIG_IGN || !is_wanted {
            return;
        }
        // Without a timer nothing would limit the wait.
        if !self.has_timer() {
            tracing::warn!(
                "signal {} ends the run at once: the system gives no timer",
                self.number
            );
            return;
        }
        let mut ours = empty_action();
        ours.sa_sigaction = handle as *const () as usize;
        ours.sa_mask = current.sa_mask;
        ours.sa_flags = libc::SA_SIGINFO
            | if is_default {
                // Nothing in the script expects to be interrupted by it.
                libc::SA_RESTART | libc::SA_ONSTACK
            } else {
                current.sa_flags & (libc::SA_RESTART | libc::SA_ONSTACK | libc::SA_NODEFER)
            };
        self.remember(current);
        set_action(self.number, &ours);
    }

    fn remember(&self, current: sigaction) {
        let known = self.below();
        if known.is_some_and(|known| is_same(known, &current)) {
            return;
        }
        self.below
            .store(Box::leak(Box::new(current)), Ordering::SeqCst);
    }

    fn below(&self) -> Option<&'static sigaction> {
        // SAFETY: It is null, or points to a leaked value, which nobody changes.
        unsafe { self.below.load(Ordering::SeqCst).as_ref() }
    }

    /// Puts the previous handler back.
    fn get_out(&self) {
        let is_there = action_of(self.number).is_some_and(|current| is_ours(&current));
        if let Some(below) = self.below().filter(|_| is_there) {
            set_action(self.number, below);
        }
    }

    /// In our handler: does what would have happened without it.
    fn pass_on(&self, info: *mut siginfo_t, context: *mut c_void) {
        let Some(below) = self.below() else {
            die_of(self.number)
        };
        if below.sa_sigaction == libc::SIG_DFL {
            die_of(self.number);
        }
        note_handed(self.number);
        let handler = below.sa_sigaction as *const ();
        if below.sa_flags & libc::SA_SIGINFO == 0 {
            // SAFETY: Without the flag, a handler that was installed is a function of this type.
            let handler: extern "C" fn(c_int) = unsafe { std::mem::transmute(handler) };
            handler(self.number);
        } else {
            // SAFETY: With the flag, a handler that was installed is a function of this type.
            let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
                unsafe { std::mem::transmute(handler) };
            handler(self.number, info, context);
        }
    }

    /// Outside of our handler: sends the signal again, to the previous handler.
    fn act(&self) {
        let Some(below) = self.below() else {
            die_of(self.number)
        };
        if below.sa_sigaction == libc::SIG_DFL {
            die_of(self.number);
        }
        note_handed(self.number);
        set_action(self.number, below);
        raise(self.number);
        self.get_in_front();
    }

    fn has_timer(&self) -> bool {
        if self.timer.load(Ordering::SeqCst) >= 0 {
            return true;
        }
        // SAFETY: All zeros is a valid value of this type.
        let mut event: libc::sigevent = unsafe { MaybeUninit::zeroed().assume_init() };
        event.sigev_notify = libc::SIGEV_SIGNAL;
        event.sigev_signo = self.number;
        event.sigev_value.sival_ptr = self.mark();
        let mut timer: c_int = -1;
        // The system call itself: older C libraries keep its wrapper in a separate library.
        // SAFETY: Both pointers are valid for the call; the kernel's number of a timer is an `int`.
        let outcome = unsafe {
            libc::syscall(
                libc::SYS_timer_create,
                libc::CLOCK_MONOTONIC,
                ptr::from_mut(&mut event),
                ptr::from_mut(&mut timer),
            )
        };
        if outcome == 0 {
            self.timer.store(timer, Ordering::SeqCst);
        }
        outcome == 0
    }

    /// Sends the signal again after this time; 0: never.
    fn set_timer(&self, after_ns: i64) {
        let after = libc::timespec {
            tv_sec: after_ns / 1_000_000_000,
            tv_nsec: after_ns % 1_000_000_000,
        };
        let never = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let times = libc::itimerspec {
            it_interval: never,
            it_value: after,
        };
        let none: *mut libc::itimerspec = ptr::null_mut();
        // SAFETY: The pointer is valid for the call, which fails if there is no such timer.
        unsafe {
            libc::syscall(
                libc::SYS_timer_settime,
                self.timer.load(Ordering::SeqCst),
                0,
                ptr::from_ref(&times),
                none,
            )
        };
    }

    /// A value that distinguishes our timer's signal from that of another timer.
    fn mark(&self) -> *mut c_void {
        ptr::from_ref(self).cast_mut().cast()
    }
}

fn is_of_timer(watched: &Watched, info: &siginfo_t) -> bool {
    // SAFETY: The signal is of a timer, so this member exists.
    let value = unsafe { info.si_value() };
    value.sival_ptr == watched.mark()
}

fn is_ours(action: &sigaction) -> bool {
    action.sa_sigaction == handle as *const () as usize
}

fn is_same(one: &sigaction, other: &sigaction) -> bool {
    (one.sa_sigaction, one.sa_flags) == (other.sa_sigaction, other.sa_flags)
}

// -- system calls ---------------------------------------------------------------------------------

fn own_process() -> c_int {
    // SAFETY: It has no preconditions.
    unsafe { libc::getpid() }
}

fn now_ns() -> i64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: The pointer is valid for the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

fn empty_action() -> sigaction {
    // SAFETY: All zeros is a valid value of this type: the default, an empty mask, no flags.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

fn action_of(number: c_int) -> Option<sigaction> {
    let mut current = empty_action();
    // SAFETY: The pointer is valid for the call, and a null one asks for no change.
    let outcome = unsafe { libc::sigaction(number, ptr::null(), &raw mut current) };
    (outcome == 0).then_some(current)
}

fn set_action(number: c_int, action: &sigaction) {
    // SAFETY: It installs our handler, the default, or one that was installed before; all may be
    // called.
    unsafe { libc::sigaction(number, action, ptr::null_mut()) };
}

/// Sends this thread a signal, which has acted when this returns, even if it is blocked now.
fn raise(number: c_int) {
    let mut set = MaybeUninit::<sigset_t>::zeroed();
    // SAFETY: The pointer is valid for the call.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: It is a set now.
    unsafe { libc::sigaddset(set.as_mut_ptr(), number) };
    let mut before = MaybeUninit::<sigset_t>::zeroed();
    // SAFETY: Both pointers are valid for the call.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), before.as_mut_ptr()) };
    // SAFETY: It has no preconditions.
    unsafe { libc::raise(number) };
    // SAFETY: The call above has filled it; should it have failed, all zeros is the empty set.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
}

/// For a process that the kernel protects from signals, such as the first process of a container.
fn exit(number: c_int) -> ! {
    // SAFETY: It has no preconditions, and may be called in a handler.
    unsafe { libc::_exit(SIGNAL_BASE + number) }
}
