//! Detects whether another node's clock runs at the same rate as this one's, which leases rely on.
//!
//! ```text
//!   heartbeat: sent at its 5,000 ─────► heard at 7,003: 2,003 apart ─┐ the least of a window: what the way took least of
//!                                                                   ▼
//!   window 1: 2,001   window 2: 2,001   window 3: 2,301   ─► 300 ms in 30 s: a hundredth too slow
//! ```
//!
//! A heartbeat's delay only adds to the difference, so the minimum of many shows how far the clocks
//! are apart. The difference itself does not matter, but it must not change. A clock that stood
//! still once is off for one window.

use std::collections::BTreeMap;

use crate::state::NodeId;

/// Maximum trusted deviation of a clock, in parts per million: half a percent. A lease tolerates
/// two percent.
pub const DRIFT_PPM_MAX: u64 = 5_000;
/// Length of a window in node timeouts, ...
const WINDOW_TIMEOUTS: u64 = 20;
/// ... and its minimum: a temporarily longer delay is not drift.
const WINDOW_MS_MIN: u64 = 30_000;

/// See the module.
#[derive(Debug)]
pub struct Drift {
    window_ms: u64,
    nodes: BTreeMap<NodeId, Watched>,
}

#[derive(Clone, Copy, Debug)]
struct Watched {
    start_count: u64,
    began_ms: u64,
    least: i128,
    before: Option<i128>,
    ppm: i64,
}

impl Drift {
    /// Creates a detector that knows no clocks.
    #[must_use]
    pub fn new(node_timeout_ms: u64) -> Self {
        Self {
            window_ms: WINDOW_MS_MIN.max(node_timeout_ms.saturating_mul(WINDOW_TIMEOUTS)),
            nodes: BTreeMap::new(),
        }
    }

    /// Notes a heartbeat and the time at which the node sent it, by its own clock. Returns the
    /// deviation of that clock if this call determined it.
    pub fn note(
        &mut self,
        node: NodeId,
        start_count: u64,
        sent_ms: u64,
        now_ms: u64,
    ) -> Option<i64> {
        let apart = i128::from(now_ms) - i128::from(sent_ms);
        let fresh = Watched {
            start_count,
            began_ms: now_ms,
            least: apart,
            before: None,
            ppm: 0,
        };
        let watched = self.nodes.entry(node).or_insert(fresh);
        let silence_ms = now_ms.saturating_sub(watched.began_ms);
        // A restarted node may be on another machine; and a time of silence is not part of one
        // window.
        if watched.start_count != start_count || silence_ms > 2 * self.window_ms {
            let ppm = watched.ppm;
            *watched = fresh;
            return (ppm != 0).then_some(0);
        }
        if silence_ms < self.window_ms {
            watched.least = watched.least.min(apart);
            return None;
        }
        let ppm = watched.before.map_or(0, |before| {
            let ppm = (watched.least - before) * 1_000_000 / i128::from(silence_ms.max(1));
            i64::try_from(ppm).unwrap_or(i64::MAX)
        });
        *watched = Watched {
            before: Some(watched.least),
            ppm,
            ..fresh
        };
        Some(ppm)
    }

    /// Returns by how many parts per million a node's clock lags behind this one's, as far as
    /// known.
    #[must_use]
    pub fn ppm(&self, node: NodeId) -> i64 {
        self.nodes.get(&node).map_or(0, |watched| watched.ppm)
    }

    /// Whether a node's clock deviates so much that it gets no lease.
    #[must_use]
    pub fn is_off(&self, node: NodeId) -> bool {
        is_off(self.ppm(node))
    }
}

/// Whether a clock with this deviation in parts per million is not trusted.
#[must_use]
pub fn is_off(ppm: i64) -> bool {
    ppm.unsigned_abs() > DRIFT_PPM_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leader::Leader;
    use crate::message::{CopyStatus, Heartbeat};
    use crate::state::{ControlState, CopyKind, Node, Shard, ShardId};
    use crate::times::Times;

    const NODE: NodeId = NodeId([1; 20]);

    /// Feeds heartbeats of five minutes, one per 100 ms, from a clock of this rate, with a delay of
    /// 1 to 90 ms.
    fn watched(per_million: i64) -> (Drift, Vec<i64>) {
        let mut drift = Drift::new(1_500);
        let mut found = Vec::new();
        for beat in 0..3_000_i64 {
            let real_ms = beat * 100;
            let own = real_ms + real_ms * per_million / 1_000_000;
            let way_ms = 1 + (beat * 37) % 90;
            let at = |ms: i64| u64::try_from(50_000 + ms).unwrap_or(0);
            found.extend(drift.note(NODE, 3, at(own), at(real_ms + way_ms)));
        }
        (drift, found)
    }

    #[test]
    fn a_clock_that_goes_at_another_rate_is_found_out() {
        for rate in [-50_000, -8_000, 8_000, 50_000] {
            let (drift, found) = watched(rate);
            assert!(drift.is_off(NODE), "{rate}: {found:?}");
            let behind = -rate;
            assert!(
                (drift.ppm(NODE) - behind).abs() < behind.abs() / 10,
                "{rate}"
            );
        }
        for rate in [-2_000, 0, 2_000] {
            let (drift, found) = watched(rate);
            assert!(!drift.is_off(NODE) && found.len() > 5, "{rate}: {found:?}");
        }
    }

    #[test]
    fn a_clock_that_stood_still_is_off_for_one_window() {
        let mut drift = Drift::new(1_500);
        let mut off = Vec::new();
        for beat in 0..3_000_u64 {
            let stood_ms = if beat > 1_000 { 5_000 } else { 0 };
            let sent_ms = 50_000 + beat * 100 - stood_ms;
            if drift.note(NODE, 3, sent_ms, 9_000 + beat * 100).is_some() {
                off.push(drift.is_off(NODE));
            }
        }
        assert_eq!(off.iter().filter(|off| **off).count(), 1, "{off:?}");
        assert_eq!(off.last(), Some(&false));
    }

    #[test]
    fn heartbeats_that_came_late_for_a_while_are_no_drift() {
        let mut drift = Drift::new(1_500);
        for beat in 0..2_000_u64 {
            // For ten seconds all heartbeats arrive three seconds late.
            let late_ms = if (500..600).contains(&beat) { 3_000 } else { 0 };
            let found = drift.note(NODE, 3, beat * 100, 70_000 + beat * 100 + late_ms);
            assert!(!is_off(found.unwrap_or(0)), "{beat}: {found:?}");
        }
    }

    /// Whether a leader grants leases to the primary of the only shard, in term 1, whose clock has
    /// this rate.
    fn is_trusted(per_million: i64) -> bool {
        let shard = ShardId(0);
        let mut state = ControlState::default();
        state.nodes.insert(NODE, Node::default());
        let one = Shard {
            term: 1,
            primary: NODE,
            members: [(NODE, CopyKind::Data)].into(),
            ..Shard::default()
        };
        state.shards.insert(shard, one);
        let mut leader = Leader::new(Times::default(), 0);
        leader.set_leading(Some((1, 1)), 0);
        let mut is_trusted = true;
        let mut judged = 0;
        for beat in 1..1_200_i64 {
            let own = beat * 100 + beat * 100 * per_million / 1_000_000;
            let beat = Heartbeat {
                node: NODE,
                number: beat.unsigned_abs(),
                copies: vec![CopyStatus {
                    shard,
                    office: 1,
                    ..CopyStatus::default()
                }],
                sent_ms: Some(own.unsigned_abs()),
                ..Heartbeat::default()
            };
            let reply = leader.on_heartbeat(beat.number * 100, &beat, &state, true);
            let reply = reply.expect("it leads");
            is_trusted = !reply.leases.is_empty();
            assert_eq!(is_trusted, !is_off(reply.drift_ppm.unwrap_or(0)));
            judged += leader.take_judged().len();
        }
        assert_eq!(judged > 0, !is_trusted);
        is_trusted
    }

    #[test]
    fn a_primary_whose_clock_is_off_gets_no_lease() {
        assert!(is_trusted(0) && is_trusted(3_000));
        assert!(!is_trusted(20_000) && !is_trusted(-20_000));
    }

    #[test]
    fn a_node_that_was_started_anew_may_have_another_clock() {
        let mut drift = Drift::new(1_500);
        for beat in 0..900_u64 {
            let _found = drift.note(NODE, 3, beat * 90, 70_000 + beat * 100);
        }
        assert!(drift.is_off(NODE));
        assert_eq!(drift.note(NODE, 4, 5, 170_000), Some(0));
        assert!(!drift.is_off(NODE));
    }
}
