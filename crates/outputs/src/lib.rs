//! The doors: the same questions over MCP, over HTTP and for the dashboard. A door asks and passes on; it never writes SQL
//! and never looks into an answer.
//!
//! | module | what it is |
//! |---|---|
//! | [`Asker`] | asks a question on a thread of its own: bounded in number, time and size, withdrawn when nobody waits |
//! | [`http`] | one port: who may enter, what is on record, how much is too much, and what lies behind |
//! | [`mcp`] | the questions as tools of an assistant, over stdio and over HTTP |
//! | [`Nodes`] | the same questions to other hosts, and whole traces of theirs |
//! | [`Otlp`] | numbers, records of a log and spans for an OpenTelemetry receiver, over HTTP and gRPC |
//! | [`Push`], [`Fleet`] | tells a cluster what workers did; gathers what all of them tell |
//! | [`Actions`] | what is done when an alert fires: a line of JSON, a webhook, a command |
//! | `copied` | a trace as it is at one moment, in a file of its own, for somebody who takes all of it |
//! | `clock` | when an answer was asked for and given, so that hosts can tell how far their clocks are off |
//! | `refusal` | why there is no answer: a code, a status and a hint, the same in every door |
//! | `catalog` | what the doors say about each question |

mod alerts;
mod ask;
mod cache;
mod catalog;
mod client;
mod clock;
mod copied;
pub mod fleet;
pub mod http;
pub mod mcp;
mod nodes;
mod otlp;
mod refusal;

pub use alerts::{Actions, Done};
pub use ask::{Answer, Asker, Bounds, Progress};
pub use clock::Clock;
pub use fleet::{Fleet, FleetAddress, Mode, Push, PushError, Standing};
pub use http::{MetricsServer, Patience, Plain, Server, Settings, SettingsError, TlsFiles, Token, Tokens};
pub use nodes::{Node, NodeError, Nodes, PORT, Reply};
pub use otlp::{Attribute, Level, LogEntry, Otlp, OtlpSettings, Sent, SpanContext, SpanEntry, SpanLink};
pub use refusal::Refusal;
