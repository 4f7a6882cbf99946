//! `gpuwhy fleet`: one place that hears all nodes of a cluster, and says which one holds the others up.

mod rates;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use gpuwhy_outputs::{Asker, Bounds, Fleet as Gathered, Nodes, Plain, Server, Settings, Token, Tokens};
use gpuwhy_questions::FLEET_QUESTIONS;
use gpuwhy_questions::units::parse_size;

use super::ask::{Asks, Chosen, page};
use super::nodes::{answered, tell};
use super::serving::{Security, parse_address, token, until_signal};
use crate::print;

/// How often ranks are compared.
const EVERY: Duration = Duration::from_millis(250);

/// Gather what the nodes of a cluster tell, and ask who holds them up.
#[derive(Args)]
pub struct Fleet {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Serve(Serve),
    Ask(AskFleet),
    Token(TokenOfNode),
}

/// Hear the nodes of one or several clusters (`trace --fleet`), and answer questions about them: over HTTP, over MCP, and to
/// `gpuwhy fleet ask`.
#[derive(Args)]
struct Serve {
    /// Where to listen: 0.0.0.0:9470 for all who can reach this machine, with a token and TLS.
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address, default_value = "127.0.0.1:9470")]
    addr: SocketAddr,
    /// Tokens that are each for telling or asking, for some clusters, for a time or for one node: a TOML file, which is read again
    /// when it changes.
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// The folder in which it keeps what it is told.
    #[arg(long, value_name = "FOLDER", default_value = "gpuwhy-fleet")]
    data: PathBuf,
    /// How large that may become; the oldest goes first.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "32GB")]
    max_size: u64,
    /// What an hour of each kind of GPU costs, a TOML file: currency = "USD", other = 2.0, and under [gpus] H200 = 3.5.
    #[arg(long, value_name = "FILE")]
    rates: Option<PathBuf>,
    #[command(flatten)]
    security: Security,
}

/// Ask a fleet: `fleet ask stragglers --fleet https://fleet:9470`.
#[derive(Args)]
struct AskFleet {
    /// The fleet.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9470", global = true)]
    fleet: String,
    /// Its token, in a file [default: the environment variable GPUWHY_TOKEN].
    #[arg(long, value_name = "FILE", global = true)]
    token_file: Option<PathBuf>,
    /// Print one object, as documented.
    #[arg(long, global = true)]
    json: bool,
    /// Show all of every cell, however wide the terminal is.
    #[arg(long, global = true)]
    wide: bool,
    #[command(subcommand)]
    chosen: Chosen<OfFleets>,
}

/// Print the token with which a node tells as itself and as no other, where the fleet has the secret in its `--tokens` as one
/// that is `per_node`.
#[derive(Args)]
struct TokenOfNode {
    /// The secret, in a file.
    #[arg(long, value_name = "FILE")]
    secret: PathBuf,
    /// The node, as `trace --node` calls it.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    node: String,
}

struct OfFleets;

impl Asks for OfFleets {
    const QUESTIONS: &'static [gpuwhy_questions::Question] = FLEET_QUESTIONS;
}

impl Fleet {
    pub fn run(self) -> Result<ExitCode> {
        match self.what {
            What::Serve(serve) => serve.run(),
            What::Ask(ask) => ask.run(),
            What::Token(token) => token.run(),
        }
    }
}

impl Serve {
    fn run(self) -> Result<ExitCode> {
        let tokens = self.tokens.as_deref().map(Tokens::read).transpose()?;
        let settings = Settings { tokens, ..self.security.settings(self.addr, Plain::OnLoopback, false)? };
        settings.check()?;
        let rates = self.rates.as_deref().map(rates::read).transpose()?;
        let (fleet, keeping) = Gathered::open(&self.data, self.max_size, rates)?;
        let asker = Arc::new(Asker::of_fleet(fleet.clone(), Bounds::default()));
        until_signal(async |stop| {
            let server = Server::bind(settings, asker).await?;
            print::note(&format!("hearing nodes at {}; stop with Ctrl-C", server.url()));
            let judged = stop.clone();
            tokio::spawn(async move {
                let mut tick = tokio::time::interval(EVERY);
                while !judged.is_cancelled() {
                    tick.tick().await;
                    fleet.judge();
                }
            });
            server.serve(stop).await;
            Ok(())
        })?;
        keeping.finish()?;
        Ok(ExitCode::SUCCESS)
    }
}

impl TokenOfNode {
    fn run(self) -> Result<ExitCode> {
        println!("{}", Token::read(&self.secret)?.of_node(&self.node));
        Ok(ExitCode::SUCCESS)
    }
}

/// A question about years takes a while.
const PATIENCE: Duration = Duration::from_secs(60);

impl AskFleet {
    fn run(self) -> Result<ExitCode> {
        let node = self.fleet.parse().map_err(anyhow::Error::msg).context("--fleet")?;
        let nodes = Nodes::new(vec![node], token(self.token_file.as_deref())?, PATIENCE);
        let replies = nodes.ask(self.chosen.question.name, &self.chosen.parameters);
        tell(&replies);
        let answers = answered(replies)?;
        answers.iter().try_for_each(|(_, answer)| page(answer, self.json, self.wide))?;
        Ok(ExitCode::SUCCESS)
    }
}
