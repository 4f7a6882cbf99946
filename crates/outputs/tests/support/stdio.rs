//! MCP as over standard input and output: lines of JSON through a pipe in memory.

use std::sync::Arc;

use gpuwhy_outputs::Asker;
use gpuwhy_outputs::mcp::McpServer;
use rmcp::ServiceExt;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf, duplex, split};
use tokio::time::timeout;

use super::LIMIT;

pub struct Assistant {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    input: WriteHalf<DuplexStream>,
    last: u64,
}

impl Assistant {
    pub async fn start(asker: Arc<Asker>) -> Self {
        let (near, far) = duplex(1 << 20);
        tokio::spawn(async move {
            let running = McpServer::new(asker).serve(split(far)).await.unwrap();
            running.waiting().await.unwrap();
        });
        let (output, input) = split(near);
        let mut assistant = Self { lines: BufReader::new(output).lines(), input, last: 0 };
        let client = json!({"name": "test", "version": "1"});
        let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client});
        assistant.request("initialize", hello).await;
        assistant.say(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        assistant
    }

    pub async fn say(&mut self, message: Value) {
        self.input.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    pub async fn hear(&mut self) -> Value {
        let line = timeout(LIMIT, self.lines.next_line()).await.unwrap().unwrap().unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Sends it without waiting; the id it has.
    pub async fn start_request(&mut self, method: &str, params: Value) -> u64 {
        self.last += 1;
        self.say(json!({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params})).await;
        self.last
    }

    /// The whole answer, with `result` or `error`.
    pub async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.start_request(method, params).await;
        loop {
            let heard = self.hear().await;
            if heard["id"] == id {
                return heard;
            }
        }
    }
}
