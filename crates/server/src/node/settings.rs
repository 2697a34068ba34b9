//! Settings that are applied at start and at every change in the same way. None of them refuses a
//! change.

use std::io;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use access::Defaults;
use engine::observer::AuditSink;
use engine::{Threshold, UseClock};
use store::{LfuTuning, Policy};

use super::Node;
use crate::audit::AuditWriter;
use crate::config::{Config, EvictionPolicy, system_reason};
use crate::limits;

impl Node {
    pub(super) fn apply_limits(&self, config: &Config) {
        let defaults = Defaults {
            all_channels: config.opens_channels,
        };
        self.core.shared.access.users.set_defaults(defaults);
        self.core
            .shared
            .access
            .denials
            .set_entries_max(config.denials_max);
        self.apply_audit(config);
        self.want_events(config);
        self.sessions
            .client_cache
            .set_keys_max(config.tracked_keys_max);
        let threshold_ms = &self.core.shared.scripts.running.threshold_ms;
        threshold_ms.store(config.busy_reply_ms, Ordering::Relaxed);
        let refuses_all = &self.core.shared.scripts.running.refuses_all;
        refuses_all.store(config.busy_refuses_all, Ordering::Relaxed);
        self.core
            .shared
            .settings
            .bulk_bytes_max
            .store(config.bulk_bytes_max, Ordering::Relaxed);
        let replies_bytes_max = limits::replies_bytes_max(&config.output_limits.normal);
        self.core
            .shared
            .settings
            .replies_bytes_max
            .store(replies_bytes_max, Ordering::Relaxed);
        self.core
            .shared
            .settings
            .compresses_dumps
            .store(config.compresses_dumps, Ordering::Relaxed);
        for ((threshold, ..), value) in Threshold::ALL.into_iter().zip(config.thresholds) {
            self.core.shared.settings.thresholds.set(threshold, value);
        }
        self.core.shared.observer.set_thresholds(&config.noticed);
        let slots = &self.core.shared.hash_slots;
        slots
            .usage
            .set_on(config.cluster.is_on && config.cluster.counts_usage);
        let policy = policy_of(config.eviction_policy);
        self.core.shared.settings.set_use_clock(match policy {
            Policy::AllKeysLfu | Policy::VolatileLfu => UseClock::Frequency,
            _ => UseClock::Recency,
        });
        let samples = u8::try_from(config.eviction_samples_count).unwrap_or(u8::MAX);
        self.core
            .store
            .set_memory_limit(config.memory_bytes_max, policy, samples);
        self.core.store.set_tenacity(config.eviction_tenacity);
        let moving = config.defragmentation.map(|own| {
            let percent = u64::from(own.idle_percent_min);
            (own.idle_bytes_min, percent)
        });
        self.core.store.set_moving(moving);
        self.core.store.set_lfu_tuning(LfuTuning {
            log_factor: u16::try_from(config.lfu_log_factor).unwrap_or(u16::MAX),
            decay_minutes: u16::try_from(config.lfu_decay_minutes).unwrap_or(u16::MAX),
        });
    }

    /// Configures the audit log.
    fn apply_audit(&self, config: &Config) {
        let audit = &self.core.shared.observer.audit;
        let mut applied = self
            .process
            .audited
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if *applied == config.audit {
            return;
        }
        applied.clone_from(&config.audit);
        let opened = config.audit.as_ref().map(|wanted| {
            let sink = AuditWriter::open(&wanted.file)?;
            let sink: Box<dyn AuditSink> = Box::new(sink);
            Ok::<_, io::Error>((wanted.filter.clone(), sink))
        });
        match opened.transpose() {
            Ok(rules) => audit.set(rules),
            Err(error) => self.core.log.warning(format_args!(
                "The audit log cannot be written: {}",
                system_reason(&error)
            )),
        }
    }
}

/// Returns the store's policy for a directive's value.
fn policy_of(policy: EvictionPolicy) -> Policy {
    match policy {
        EvictionPolicy::NoEviction => Policy::NoEviction,
        EvictionPolicy::AllKeysLru => Policy::AllKeysLru,
        EvictionPolicy::AllKeysLfu => Policy::AllKeysLfu,
        EvictionPolicy::AllKeysRandom => Policy::AllKeysRandom,
        EvictionPolicy::VolatileLru => Policy::VolatileLru,
        EvictionPolicy::VolatileLfu => Policy::VolatileLfu,
        EvictionPolicy::VolatileRandom => Policy::VolatileRandom,
        EvictionPolicy::VolatileTtl => Policy::VolatileTtl,
    }
}
