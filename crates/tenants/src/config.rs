//! The settings as they are now: read from the administrators' `ConfigMap` whenever it changes.
//!
//! What is wrong is refused with an event, and the last good settings stay, also over a restart: a
//! second `ConfigMap` remembers them. So do they when the text is gone: a map that is being replaced
//! must not lift all limits for a moment. Only an empty text means the defaults.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use reconcile::{Context, Key, Severity, Store};
use serde_json::json;
use tokio::sync::{mpsc, watch};

use crate::settings::{CONFIG_KEY, CONFIG_MAP, Settings, SettingsError};

const LAST_GOOD: &str = "non-admin-config-last-good";

/// Follows the settings. Nobody decides anything before they were read once.
pub(crate) struct Config {
    context: Context,
    admin: String,
    maps: Store<ConfigMap>,
    current: watch::Sender<Arc<Settings>>,
}

impl Config {
    /// Reads the settings; returns with the first ones.
    pub(crate) async fn start(
        context: &Context,
        admin: &str,
    ) -> (Self, watch::Receiver<Arc<Settings>>) {
        let maps: Store<ConfigMap> = Store::within(admin).start(context);
        maps.ready().await;
        let (current, receiver) = watch::channel(Arc::new(Settings::default()));
        let config = Self { context: context.clone(), admin: admin.to_owned(), maps, current };
        if !config.take().await {
            let good = config.text(LAST_GOOD).and_then(|text| Settings::parse(&text).ok());
            config.current.send_replace(Arc::new(good.unwrap_or_default()));
        }
        (config, receiver)
    }

    /// Follows changes until it is dropped.
    pub(crate) async fn follow(self) {
        // Capacity one: the last value is enough.
        let (tell, mut told) = mpsc::channel(1);
        self.maps.listen(move |key, _, _| {
            if &*key.name == CONFIG_MAP {
                let _ = tell.try_send(());
            }
        });
        self.take().await;
        while told.recv().await.is_some() {
            self.take().await;
        }
    }

    fn text(&self, name: &str) -> Option<String> {
        let found = self.maps.get(&Key::new(&self.admin, name))?;
        found.data.as_ref()?.get(CONFIG_KEY).cloned()
    }

    /// Reads what is there now; `false` if it cannot be used.
    async fn take(&self) -> bool {
        let text = self.text(CONFIG_MAP);
        match said(text.as_deref()) {
            Ok(Some((text, settings))) => {
                self.current.send_if_modified(|current| {
                    let changed = **current != settings;
                    *current = Arc::new(settings);
                    changed
                });
                self.remember(text).await;
                true
            }
            Ok(None) => {
                self.say_gone();
                false
            }
            Err(error) => {
                tracing::warn!(%error, "the settings for tenants are refused, the last good ones stay");
                if let Some(map) = self.maps.get(&Key::new(&self.admin, CONFIG_MAP)) {
                    let message = format!("refused, the last good settings stay: {error}");
                    let events = &self.context.events;
                    events.say(map.as_ref(), Severity::Warning, "InvalidSettings", &message);
                }
                false
            }
        }
    }

    /// Nothing to say where there never were settings.
    fn say_gone(&self) {
        let Some(good) = self.maps.get(&Key::new(&self.admin, LAST_GOOD)) else { return };
        let message = format!(
            "the ConfigMap {CONFIG_MAP} has no {CONFIG_KEY} any more, the last good settings stay; \
             an empty {CONFIG_KEY} means the defaults"
        );
        tracing::warn!(message, "the settings for tenants are gone");
        self.context.events.say(good.as_ref(), Severity::Warning, "SettingsGone", &message);
    }

    async fn remember(&self, text: &str) {
        if self.text(LAST_GOOD).unwrap_or_default() == text {
            return;
        }
        let api: Api<ConfigMap> = Api::namespaced(self.context.client.clone(), &self.admin);
        let body = json!({"data": {CONFIG_KEY: text}});
        let done = match api.patch(LAST_GOOD, &PatchParams::default(), &Patch::Merge(&body)).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {
                let made = ConfigMap {
                    metadata: ObjectMeta { name: Some(LAST_GOOD.into()), ..ObjectMeta::default() },
                    data: Some([(CONFIG_KEY.to_owned(), text.to_owned())].into()),
                    ..ConfigMap::default()
                };
                api.create(&PostParams::default(), &made).await.map(drop)
            }
            done => done.map(drop),
        };
        if let Err(error) = done {
            tracing::warn!(error = %telemetry::Chain(&error),
                "cannot remember the settings; after a restart they count only if they are still good");
        }
    }
}

/// The settings of a text. No text says nothing: it is not a wish for the defaults.
fn said(text: Option<&str>) -> Result<Option<(&str, Settings)>, SettingsError> {
    text.map(|text| Settings::parse(text).map(|settings| (text, settings))).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_gone_changes_nothing_and_an_empty_one_means_the_defaults() {
        assert_eq!(said(None), Ok(None));
        assert_eq!(said(Some("")), Ok(Some(("", Settings::default()))));
        let strict = "nonAdmin: {requireApprovalForBSL: true}";
        assert!(matches!(said(Some(strict)), Ok(Some((_, it))) if it.require_approval));
        assert!(said(Some("nonAdmin: {requireAproval: true}")).is_err());
    }
}
