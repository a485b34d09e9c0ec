//! The log on standard error, with `func=…` and `file="…"` in each line. Programs that start engines read
//! this form; so it is not that of the rest of the house. Spans are not written, as every process of the
//! dialect does one thing; they go to a collector where one is configured.

use std::borrow::Cow;

use telemetry::logfmt::Said;
use telemetry::{Filter, Guard, Layer, LayerContext};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber};

/// Libraries that are silent below warnings, also when asked for more.
const QUIET: [&str; 6] = ["h2", "hyper", "hyper_util", "tonic", "tower", "rustls"];

/// The module that speaks, by a name that stays: whoever picks lines by it does not care which of our
/// crates it is in.
pub(crate) fn func(module: &str) -> Cow<'_, str> {
    match module.strip_prefix(env!("CARGO_PKG_NAME")) {
        Some(rest) if rest.is_empty() || rest.starts_with("::") => {
            Cow::Owned(format!("engine::cli{rest}"))
        }
        Some(_) | None => Cow::Borrowed(module),
    }
}

/// Where traces are sent, as the rest of the house is told.
const OTLP_VARIABLE: &str = "HOLDFAST_OTLP_ENDPOINT";

/// Writes the log of this process in that form from here on, and sends traces where the environment
/// says so. On a runtime.
pub(crate) fn install(debug: bool, service_name: &str) -> Option<Guard> {
    let level = if debug { Level::DEBUG } else { Level::INFO };
    let endpoint = std::env::var(OTLP_VARIABLE).ok().filter(|it| !it.is_empty());
    let lines = || Lines.with_filter(Wanted { level });
    let Some(endpoint) = endpoint else {
        // A log that is set up already, as in a test, is as good.
        return telemetry::init_with(lines(), None, service_name).ok();
    };
    match telemetry::init_with(lines(), Some(&endpoint), service_name) {
        Ok(guard) => Some(guard),
        Err(error) => {
            // A volume is served without traces rather than not at all.
            let guard = telemetry::init_with(lines(), None, service_name).ok();
            tracing::warn!(error = %telemetry::Chain(&error), "no traces are sent");
            guard
        }
    }
}

/// Sends the spans that wait, while the runtime goes on.
pub(crate) async fn end(guard: Option<Guard>) {
    if let Some(guard) = guard {
        guard.end().await;
    }
}

struct Wanted {
    level: Level,
}

impl Wanted {
    fn takes(&self, target: &str, level: Level) -> bool {
        let family = target.split("::").next().unwrap_or_default();
        level <= if QUIET.contains(&family) { Level::WARN } else { self.level }
    }
}

impl<S: Subscriber> Filter<S> for Wanted {
    fn enabled(&self, metadata: &Metadata<'_>, _: &LayerContext<'_, S>) -> bool {
        !metadata.is_span() && self.takes(metadata.target(), *metadata.level())
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level.into())
    }
}

struct Lines;

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: LayerContext<'_, S>) {
        let metadata = event.metadata();
        let place = match (metadata.file(), metadata.line()) {
            (Some(file), Some(line)) => {
                format!("{}:{line}", file.rsplit('/').next().unwrap_or(file))
            }
            (_, _) => String::new(),
        };
        let func = func(metadata.target());
        let first = [("func", func.as_ref()), ("file", place.as_str())];
        Said::by(event).write(*metadata.level(), &first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_called_what_they_always_were() {
        assert_eq!(func(module_path!()), "engine::cli::log::tests");
        assert_eq!(func("enginecli"), "engine::cli");
        assert_eq!(func("engine::control"), "engine::control");
        assert_eq!(func("engineclient::x"), "engineclient::x");
    }

    #[test]
    fn libraries_are_heard_from_warnings_on() {
        let wanted = Wanted { level: Level::DEBUG };
        assert!(wanted.takes("engine::control", Level::DEBUG));
        assert!(!wanted.takes("engine::control", Level::TRACE));
        assert!(!wanted.takes("h2::client", Level::INFO));
        assert!(wanted.takes("h2::client", Level::WARN));
    }
}
