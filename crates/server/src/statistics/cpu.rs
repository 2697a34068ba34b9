//! INFO cpu: processor time.

use super::row::counter;
use super::row::{Item, Unit, Value};
use crate::process::{self, Whose};

#[rustfmt::skip] // One row, one value.
pub(super) const ITEMS: &[Item] = &[
    counter("used_cpu_sys", "redis_cpu_sys_seconds_total", Unit::Seconds, "Processor time of the process in the kernel.", |_| system(Whose::Process)),
    counter("used_cpu_user", "redis_cpu_user_seconds_total", Unit::Seconds, "Processor time of the process outside of the kernel.", |_| user(Whose::Process)),
    counter("used_cpu_sys_children", "redis_cpu_sys_children_seconds_total", Unit::Seconds, "The same of its children, in the kernel.", |_| system(Whose::Children)),
    counter("used_cpu_user_children", "redis_cpu_user_children_seconds_total", Unit::Seconds, "The same of its children, outside of the kernel.", |_| user(Whose::Children)),
    counter("used_cpu_sys_main_thread", "redis_cpu_sys_main_thread_seconds_total", Unit::Seconds, "The same of the thread that tells it, in the kernel.", |_| system(Whose::Thread)),
    counter("used_cpu_user_main_thread", "redis_cpu_user_main_thread_seconds_total", Unit::Seconds, "The same of the thread that tells it, outside of the kernel.", |_| user(Whose::Thread)),
];

fn system(whose: Whose) -> Value {
    seconds(process::processor_time(whose).system_us)
}

fn user(whose: Whose) -> Value {
    seconds(process::processor_time(whose).user_us)
}

fn seconds(us: u64) -> Value {
    Value::Text(format!("{}.{:06}", us / 1_000_000, us % 1_000_000))
}
