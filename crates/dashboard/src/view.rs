//! What pages are made of: tiles, tables, charts, forms. Pages fill these values; the templates turn
//! them into markup, and escape every text on the way.

use askama::Template;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::assets::{self, Asset};
use crate::chart::{Chart, Mark};
use crate::session::Note;

/// What may stand in a path as it is.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A path on this site with a name at its end, whatever the name is.
pub(crate) fn path(folder: &str, name: &str) -> String {
    format!("{folder}/{}", utf8_percent_encode(name, SEGMENT))
}

/// Light or dark, if the person has chosen; else as their system has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Theme {
    #[default]
    System,
    Light,
    Dark,
}

impl Theme {
    pub(crate) fn parse(text: &str) -> Self {
        match text {
            "light" => Self::Light,
            "dark" => Self::Dark,
            _ => Self::System,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }

    pub(crate) const ALL: [Self; 3] = [Self::System, Self::Light, Self::Dark];
}

/// What is around every page.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub(crate) theme: Theme,
    /// Where one is, to come back to.
    pub(crate) here: String,
    pub(crate) signed: Option<Signed>,
    pub(crate) note: Option<Note>,
}

#[derive(Debug, Clone)]
pub(crate) struct Signed {
    pub(crate) user: String,
    pub(crate) csrf: String,
    pub(crate) nav: Vec<Link>,
}

#[derive(Debug, Clone)]
pub(crate) struct Link {
    pub(crate) href: String,
    pub(crate) text: String,
    pub(crate) is_here: bool,
}

impl Frame {
    pub(crate) fn style() -> &'static Asset {
        &assets::STYLE
    }

    pub(crate) fn script() -> &'static Asset {
        &assets::SCRIPT
    }

    pub(crate) fn icon() -> &'static Asset {
        &assets::ICON
    }

    pub(crate) fn themes() -> [Theme; 3] {
        Theme::ALL
    }

    fn csrf(&self) -> &str {
        self.signed.as_ref().map(|it| it.csrf.as_str()).unwrap_or_default()
    }
}

/// How something stands, at a glance; always beside a word that says the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    Busy,
    Warn,
    Bad,
    Plain,
}

impl Tone {
    pub(crate) fn class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Busy => "busy",
            Self::Warn => "warn",
            Self::Bad => "bad",
            Self::Plain => "plain",
        }
    }
}

/// As long as a date with an age behind it.
const MAX_SHORT: usize = 30;

#[derive(Debug, Clone)]
pub(crate) enum Cell {
    Text(String),
    Link {
        href: String,
        text: String,
    },
    Badge {
        tone: Tone,
        text: String,
    },
    /// How far, in percent, and in words.
    Progress {
        percent: i32,
        text: String,
    },
    Forms(Vec<Form>),
}

impl Cell {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        let text = text.into();
        Self::Text(if text.is_empty() { "–".to_owned() } else { text })
    }

    /// Whether it says nothing: where columns do not fit, it is left out.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) => text == "–",
            Self::Forms(forms) => forms.is_empty(),
            Self::Link { .. } | Self::Badge { .. } | Self::Progress { .. } => false,
        }
    }

    /// Whether a text is so short that it is read in one line: a size, a time, a name of people's making.
    pub(crate) fn is_short(text: &str) -> bool {
        text.chars().count() <= MAX_SHORT
    }

    pub(crate) fn link(folder: &str, name: &str) -> Self {
        Self::Link { href: path(folder, name), text: name.to_owned() }
    }

    pub(crate) fn badge(tone: Tone, text: impl Into<String>) -> Self {
        Self::Badge { tone, text: text.into() }
    }

    /// A bar if something is under way, else a badge.
    pub(crate) fn going(percent: Option<i32>, tone: Tone, text: impl Into<String>) -> Self {
        match percent {
            Some(percent) => Self::Progress { percent: percent.clamp(0, 100), text: text.into() },
            None => Self::badge(tone, text),
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) head: &'static [&'static str],
    pub(crate) rows: Vec<Vec<Cell>>,
    /// What is said where there are no rows.
    pub(crate) none: &'static str,
    /// What is said beneath, as that there are more.
    pub(crate) foot: Option<String>,
}

impl Table {
    /// A cell with the head of its column, which stands before it where columns do not fit.
    pub(crate) fn cells<'a>(
        &'a self,
        row: &'a [Cell],
    ) -> impl Iterator<Item = (&'static str, &'a Cell)> {
        self.head.iter().copied().zip(row)
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Tile {
    pub(crate) title: &'static str,
    pub(crate) value: String,
    pub(crate) detail: String,
    pub(crate) tone: Tone,
    pub(crate) href: &'static str,
    /// How full, in percent.
    pub(crate) meter: Option<u64>,
}

#[derive(Debug, Clone)]
pub(crate) enum Input {
    Text { pattern: &'static str, title: &'static str },
    Number { min: u32, max: u32 },
    Choice(Vec<String>),
}

#[derive(Debug, Clone)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) label: &'static str,
    pub(crate) value: String,
    pub(crate) input: Input,
    pub(crate) is_required: bool,
}

impl Field {
    pub(crate) fn name(label: &'static str, value: impl Into<String>) -> Self {
        let pattern = "[a-z0-9]([a-z0-9.\\-]*[a-z0-9])?";
        let title = "Lower-case letters, digits, dashes and dots";
        let input = Input::Text { pattern, title };
        Self { name: "name", label, value: value.into(), input, is_required: true }
    }

    pub(crate) fn replicas(value: &str) -> Self {
        let input = Input::Number { min: 1, max: 20 };
        Self {
            name: "replicas",
            label: "Copies",
            value: value.to_owned(),
            input,
            is_required: true,
        }
    }
}

/// Something to do. Opens where it stands; what it asks for is sent to `action`.
#[derive(Debug, Clone)]
pub(crate) struct Form {
    /// Unlike that of any other on the page.
    pub(crate) id: String,
    /// What is pressed to see the form.
    pub(crate) label: &'static str,
    /// What will happen, in a sentence.
    pub(crate) told: String,
    pub(crate) action: String,
    pub(crate) button: &'static str,
    pub(crate) tone: Tone,
    pub(crate) fields: Vec<Field>,
}

/// One line of the tree of snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Twig {
    /// Branches on the way to it.
    pub(crate) depth: usize,
    pub(crate) name: String,
    pub(crate) detail: String,
}

#[derive(Debug, Clone)]
pub(crate) enum Section {
    /// The one sentence to read if there is time for one only.
    Verdict {
        tone: Tone,
        text: String,
    },
    Tiles(Vec<Tile>),
    Table(Table),
    Charts(Vec<Chart>),
    Facts(Vec<(&'static str, String)>),
    List {
        title: &'static str,
        tone: Tone,
        items: Vec<String>,
    },
    Tree {
        title: &'static str,
        twigs: Vec<Twig>,
    },
    Hint(String),
}

/// A page: what changes by itself is between its forms at the top and its end.
#[derive(Debug, Template)]
#[template(path = "page.html")]
pub(crate) struct Page {
    pub(crate) frame: Frame,
    pub(crate) title: String,
    /// Forms that stay as they are while the rest of the page changes.
    pub(crate) forms: Vec<Form>,
    pub(crate) sections: Vec<Section>,
    /// The name by which changes of the page are listened to.
    pub(crate) live: &'static str,
}

#[derive(Debug, Template)]
#[template(path = "sign_in.html")]
pub(crate) struct SignIn {
    pub(crate) frame: Frame,
    /// Why the last attempt failed.
    pub(crate) refused: Option<String>,
}

#[derive(Debug, Template)]
#[template(path = "problem.html")]
pub(crate) struct Problem {
    pub(crate) frame: Frame,
    pub(crate) title: String,
    pub(crate) told: String,
    pub(crate) hint: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "\"><script>alert(1)</script>'&{{7*7}}";

    fn frame() -> Frame {
        let nav = vec![Link { href: "/".into(), text: "Overview".into(), is_here: true }];
        let signed = Signed { user: HOSTILE.into(), csrf: "proof".into(), nav };
        let note = Some(Note { text: HOSTILE.into(), is_error: true });
        Frame { theme: Theme::Dark, here: path("/volumes", HOSTILE), signed: Some(signed), note }
    }

    fn form() -> Form {
        Form {
            id: "f".into(),
            label: "Do",
            told: HOSTILE.into(),
            action: path("/volumes", HOSTILE),
            button: "Do it",
            tone: Tone::Bad,
            fields: vec![
                Field::name("Name", HOSTILE),
                Field {
                    name: "choice",
                    label: "Choice",
                    value: HOSTILE.into(),
                    input: Input::Choice(vec![HOSTILE.into()]),
                    is_required: true,
                },
            ],
        }
    }

    #[test]
    fn no_text_becomes_markup_wherever_it_stands() {
        let table = Table {
            title: HOSTILE.into(),
            head: &["A", "B", "C", "D", "E"],
            rows: vec![vec![
                Cell::text(HOSTILE),
                Cell::link("/volumes", HOSTILE),
                Cell::badge(Tone::Good, HOSTILE),
                Cell::going(Some(250), Tone::Busy, HOSTILE),
                Cell::Forms(vec![form()]),
            ]],
            none: "",
            foot: Some(HOSTILE.into()),
        };
        let tile = Tile {
            title: "T",
            value: HOSTILE.into(),
            detail: HOSTILE.into(),
            tone: Tone::Warn,
            href: "/",
            meter: Some(50),
        };
        let bar = crate::chart::Bar { label: HOSTILE.into(), value: 3, told: HOSTILE.into() };
        let chart = crate::chart::bars("Lag", HOSTILE.into(), vec![bar]);
        let twigs = vec![Twig { depth: 99, name: HOSTILE.into(), detail: HOSTILE.into() }];
        let page = Page {
            frame: frame(),
            title: HOSTILE.into(),
            forms: vec![form()],
            sections: vec![
                Section::Verdict { tone: Tone::Bad, text: HOSTILE.into() },
                Section::Tiles(vec![tile]),
                Section::Table(table),
                Section::Charts(vec![chart]),
                Section::Facts(vec![("fact", HOSTILE.into())]),
                Section::List { title: "L", tone: Tone::Warn, items: vec![HOSTILE.into()] },
                Section::Tree { title: "S", twigs },
                Section::Hint(HOSTILE.into()),
            ],
            live: "overview",
        };
        let text = page.render().unwrap();
        // The script of the page itself is the only one.
        assert_eq!(text.matches("<script").count(), 1, "{text}");
        assert!(!text.contains("alert(1)<"), "{text}");
        assert!(!text.contains(HOSTILE), "a quote ended an attribute\n{text}");
        let is_handler = |rest: &str| {
            let name: String = rest.chars().take_while(char::is_ascii_alphabetic).collect();
            !name.is_empty() && rest[name.len()..].starts_with('=')
        };
        assert!(!text.contains(" style="), "inline style\n{text}");
        assert!(!text.split(" on").skip(1).any(is_handler), "inline handler\n{text}");
        let problem = Problem {
            frame: frame(),
            title: HOSTILE.into(),
            told: HOSTILE.into(),
            hint: HOSTILE.into(),
        };
        assert_eq!(problem.render().unwrap().matches("<script").count(), 1);
        let sign_in =
            SignIn { frame: Frame { signed: None, ..frame() }, refused: Some(HOSTILE.into()) };
        assert_eq!(sign_in.render().unwrap().matches("<script").count(), 1);
    }

    #[test]
    fn names_stay_in_their_segment_of_a_path() {
        assert_eq!(path("/volumes", "a-b.c_1"), "/volumes/a-b.c_1");
        assert_eq!(path("/volumes", "../x?y#z"), "/volumes/..%2Fx%3Fy%23z");
        assert_eq!(path("/volumes", "javascript:x"), "/volumes/javascript%3Ax");
    }
}
