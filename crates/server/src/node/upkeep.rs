//! Upkeep that one worker does for all of them, `hz` times a second.

use super::Node;
use crate::counters::Count;

impl Node {
    /// Does the upkeep that one worker does for all of them, `hz` times a second.
    pub fn upkeep(&self, now_unix_ms: u64) {
        let sums = self.all_sums();
        let sample = [
            self.all_counts().calls(),
            sums.of(Count::InputBytes),
            sums.of(Count::OutputBytes),
            sums.of(Count::Turns),
            sums.of(Count::BusyNs),
        ];
        let uptime_ms = self.uptime_ms();
        self.work.rates.sample(uptime_ms, sample);
        let held = self.core.store.held();
        self.work.rates.moving.note(uptime_ms, held.is_moving);
        self.work
            .rates
            .over_limit
            .note(uptime_ms, held.is_over_limit);
        self.tell_of_browsers(uptime_ms);
        self.tell_of_loading(uptime_ms);
        self.end_pause(now_unix_ms);
        self.flush_when_due(now_unix_ms);
        self.look_at_save_points(now_unix_ms);
        self.replication.upkeep(self);
        self.migrations.clean(self);
        self.note_peak();
        self.tell_held_bytes();
    }

    /// Logs HTTP requests that came to a client port. At most once a minute, because any sender of
    /// HTTP could fill the log otherwise.
    fn tell_of_browsers(&self, uptime_ms: u64) {
        if let Some((count, address)) = self.core.shared.observer.browsers.take_news(uptime_ms) {
            let requests = if count == 1 { "A request" } else { "Requests" };
            self.core.log.warning(format_args!(
                "{requests} of HTTP ({count} since this was told last) came to a port of this server, the                  last from {address}. The connection was closed, and nothing behind POST or Host: was run.                  A page in a browser may try to send commands here (cross protocol scripting)."
            ));
        }
    }

    /// Reports progress of the loading, so that systemd keeps waiting.
    fn tell_of_loading(&self, uptime_ms: u64) {
        let progress = self.core.env.loading.progress();
        if progress.goes_on {
            let (bytes, percent) = (progress.loaded_bytes, progress.percent());
            self.process.supervisor.loading(uptime_ms, bytes, percent);
        }
    }
}
