//! One question, one answer: whichever door it is asked through.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

mod support;

use std::path::Path;

use gpuwhy_outputs::Refusal;
use gpuwhy_questions::{Asked, NoHost, QUESTIONS, Question, Traces};
use gpuwhy_store::Limits;
use serde_json::{Value, json};
use support::stdio::Assistant;
use support::{Served, Start};

/// Parameters with which a question is asked here. None at all is an answer or an error; either has to be the same.
fn parameters(question: &Question) -> Vec<Value> {
    let own = match question.name {
        "sql" => json!({"sql": "SELECT op, count(*), sum(duration_ns) / 3.0 FROM cuda_events GROUP BY op ORDER BY op"}),
        "slow_calls" => json!({"limit": 3, "op": "cudaLaunchKernel"}),
        _ => json!({}),
    };
    vec![own, json!({}), json!({"trace": "no-such.db"}), json!({"no_such_parameter": 1})]
}

fn asked_directly(question: &Question, parameters: &Value, file: &Path) -> (Value, bool) {
    let traces = Traces::new([file.to_owned()]);
    let limits = Limits { time: gpuwhy_outputs::Bounds::default().time, ..Limits::default() };
    let asked = Asked { limits, ..Asked::new(&traces, &NoHost) };
    match question.ask(parameters.clone(), &asked) {
        Ok(answer) => (answer, false),
        Err(error) => (Refusal::from(error).to_json(), true),
    }
}

fn structured(answer: &Value) -> (Value, bool) {
    let result = &answer["result"];
    (result["structuredContent"].clone(), result["isError"] == true)
}

#[tokio::test]
async fn the_answer_is_the_same_through_every_door() {
    let served = Start::default().serve();
    let mut assistant = Assistant::start(served.asker.clone()).await;
    let mut answered = Vec::new();
    for question in QUESTIONS.iter().filter(|question| !question.acts) {
        for parameters in parameters(question) {
            let name = question.aliases.first().unwrap_or(&question.name);
            let expected = asked_directly(question, &parameters, &served.folder.path().join("demo.db"));
            let call = json!({"name": name, "arguments": parameters});
            assert_eq!(structured(&assistant.request("tools/call", call.clone()).await), expected, "{name} over stdio");
            assert_eq!(structured(&served.mcp("tools/call", call)), expected, "{name} over MCP and HTTP");
            let reply = served.ask(name, &parameters);
            assert_eq!((reply.json(), reply.status != 200), expected, "{name} over HTTP");
            if !expected.1 {
                let schema = question.output().to_value();
                support::schema::check(&expected.0, &schema, &schema, name).unwrap();
            }
            answered.extend((!expected.1).then_some(question.name));
        }
    }
    for name in ["findings", "slow_calls", "sql"] {
        assert!(answered.contains(&name), "{name} has no answer at all");
    }
}

#[tokio::test]
async fn tools_are_listed_alike_and_called_by_published_names() {
    let served = Start::default().serve();
    let mut assistant = Assistant::start(served.asker.clone()).await;
    let over_stdio = assistant.request("tools/list", json!({})).await["result"]["tools"].clone();
    assert_eq!(served.mcp("tools/list", json!({}))["result"]["tools"], over_stdio);
    assert_eq!(served.get("/api/v1/tools/list").json()["tools"], over_stdio);
    let names: Vec<&str> = over_stdio.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    for question in QUESTIONS {
        assert!(names.contains(&question.name), "{}", question.name);
        for alias in question.aliases {
            assert!(names.contains(alias), "{alias}");
        }
    }
    for published in ["get_check", "get_causal_chains", "run_demo", "run_sql"] {
        assert!(names.contains(&published), "{published}");
    }
}

#[test]
fn sql_has_a_path_of_its_own() {
    let served = Start::default().serve();
    let body = json!({"sql": "SELECT 1 AS one"}).to_string();
    let reply = served.send("POST", "/api/v1/sql", support::JSON, &body);
    assert_eq!(reply.json(), json!({"columns": ["one"], "rows": [[1]], "truncated": null}));
}

#[test]
fn a_number_without_a_fraction_is_an_integer() {
    let served = Start::default().serve();
    let rows = |limit: &str| {
        let body = format!("{{\"sql\": \"SELECT * FROM schema_tables\", \"limit\": {limit}}}");
        served.send("POST", "/api/v1/sql", support::JSON, &body).json()["rows"].as_array().unwrap().len()
    };
    assert_eq!((rows("3.0"), rows("3")), (3, 3));
}

#[test]
fn versions_health_and_the_document_are_there() {
    let served = Start::default().serve();
    assert_eq!(served.get("/api/versions").json(), json!({"gpuwhy": "0.1"}));
    let health = served.get("/api/v1/health").json();
    assert_eq!((&health["status"], &health["traces"]), (&json!("ok"), &json!(["demo.db"])));
    let document = served.get("/api/v1/openapi.json");
    assert_eq!(document.json()["openapi"], "3.1.0");
    assert_eq!(document.header("content-type"), Some("application/json"));
    assert_eq!(document.header("cache-control"), Some("no-store"));
}

#[test]
fn what_is_wrong_is_told_by_status_and_code() {
    let served = Start::default().serve();
    let sql = |text: &str| served.ask("sql", &json!({"sql": text}));
    let cases = [
        (served.ask("findings", &json!({"from": 5, "to": 4})), 400, "bad_parameters"),
        (served.ask("findings", &json!([])), 400, "bad_parameters"),
        (served.ask("findings", &json!(null)), 400, "bad_parameters"),
        (served.ask("findings", &json!({"pid": 1.5})), 400, "bad_parameters"),
        (served.ask("findings", &json!({"trace": "x.db"})), 404, "no_such_trace"),
        (served.ask("no_such_question", &json!({})), 404, "no_such_question"),
        (served.ask("check", &json!({})), 409, "not_available"),
        (sql("SELECT nothing"), 422, "bad_sql"),
        (sql("DELETE FROM calls"), 422, "not_read_only"),
        (served.send("POST", "/api/v1/sql", support::JSON, "{"), 400, "malformed"),
        (served.send("POST", "/api/v1/sql", &[("Content-Type", "text/plain")], "{}"), 415, "not_json"),
        (served.send("POST", "/api/v1/sql", &[], "{}"), 415, "not_json"),
        (served.get("/api/v1/sql"), 405, "wrong_method"),
        (served.send("PATCH", "/api/v1/tools/findings", &[], ""), 405, "wrong_method"),
        (served.send("DELETE", "/mcp", &[], ""), 405, "wrong_method"),
        (served.send("DELETE", "/", &[], ""), 405, "wrong_method"),
        (served.get("/api/v1/nothing"), 404, "no_such_path"),
        (served.get("/nothing"), 404, "no_such_path"),
    ];
    for (reply, status, code) in cases {
        assert_eq!((reply.status, reply.code().as_str()), (status, code), "{reply:?}");
        assert_eq!(reply.header("content-type"), Some("application/json"), "{reply:?}");
        assert!(status != 405 || reply.header("allow").is_some(), "{reply:?}");
    }
}

#[test]
fn what_the_protocol_refuses_has_its_shape() {
    let served = Start::default().serve();
    let headers = [support::JSON, &[("Accept", "text/html")]].concat();
    let message = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/list"}).to_string();
    let cases = [
        (served.send("POST", "/mcp", &headers, &message), 406, -32600),
        (served.send("POST", "/mcp", support::JSON, "{"), 400, -32700),
    ];
    for (reply, status, code) in cases {
        assert_eq!(reply.status, status, "{reply:?}");
        assert_eq!(reply.header("content-type"), Some("application/json"), "{reply:?}");
        assert_eq!(reply.json()["error"]["code"], code, "{reply:?}");
        assert!(reply.json()["error"]["message"].as_str().is_some_and(|text| !text.is_empty()), "{reply:?}");
    }
}

#[tokio::test]
async fn resources_and_the_prompt_can_be_read() {
    let served = Start::default().serve();
    let listed = served.mcp("resources/list", json!({}));
    let uris: Vec<_> = listed["result"]["resources"].as_array().unwrap().iter().map(|one| one["uri"].clone()).collect();
    assert_eq!(uris, ["gpuwhy://schema", "gpuwhy://causes", "gpuwhy://findings"]);
    let read = |uri: &str| served.mcp("resources/read", json!({"uri": uri}))["result"]["contents"][0].clone();
    assert!(read("gpuwhy://schema")["text"].as_str().unwrap().contains("cuda_events"));
    assert!(read("gpuwhy://causes")["text"].as_str().unwrap().contains("cpu-preempted"));
    let findings: Value = serde_json::from_str(read("gpuwhy://findings")["text"].as_str().unwrap()).unwrap();
    assert_eq!(findings, served.ask("findings", &json!({})).json());
    assert!(served.mcp("resources/read", json!({"uri": "gpuwhy://../etc/passwd"}))["error"].is_object());
    let prompt = served.mcp("prompts/get", json!({"name": "investigate", "arguments": {"pid": "4711"}}));
    assert!(prompt["result"]["messages"][0]["content"]["text"].as_str().unwrap().contains("4711"));
    assert!(served.mcp("tools/call", json!({"name": "nothing"}))["error"].is_object());
}

#[tokio::test]
async fn a_list_that_is_too_long_for_a_model_comes_in_pages() {
    let served = Start::default().serve();
    let sql = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 1000)
        SELECT x, printf('%.1000c', 'a') FROM n";
    let asked = json!({"sql": sql, "limit": 1000});
    let whole = served.ask("sql", &asked);
    assert!(whole.body.len() > 900_000 && whole.json()["truncated"] == "bytes", "{}", whole.body.len());
    let answer = served.mcp("tools/call", json!({"name": "sql", "arguments": asked}));
    let (part, is_error) = structured(&answer);
    assert!(!is_error && part["truncated"] == "rows", "{is_error}");
    assert!((100_000..=256 << 10).contains(&part.to_string().len()));
    let wide = "SELECT group_concat(name, printf('%.200000c', 'a')) FROM (SELECT 1 AS name UNION ALL SELECT 2)";
    let wide = json!({"sql": format!("SELECT * FROM ({wide}) JOIN ({wide})")});
    let (error, is_error) = structured(&served.mcp("tools/call", json!({"name": "sql", "arguments": wide})));
    assert!(is_error);
    assert_eq!(error["error"]["code"], "too_large");
    assert!(error["error"]["hint"].as_str().unwrap().contains("limit"));
}

#[tokio::test]
async fn a_client_that_wants_to_know_is_told_how_far_it_is() {
    let served = Start::default().serve();
    let mut assistant = Assistant::start(served.asker.clone()).await;
    let call = json!({"name": "findings", "arguments": {}, "_meta": {"progressToken": "mine"}});
    let id = assistant.start_request("tools/call", call.clone()).await;
    let mut heard = Vec::new();
    let answer = loop {
        let message = assistant.hear().await;
        if message["id"] == id {
            break message;
        }
        assert_eq!(message["method"], "notifications/progress");
        assert_eq!(message["params"]["progressToken"], "mine");
        heard.push(message["params"]["progress"].as_f64().unwrap());
    };
    assert!(answer["result"]["structuredContent"]["findings"].is_array());
    assert!(!heard.is_empty() && heard.is_sorted(), "{heard:?}");
    let served = Start::default().serve();
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call});
    let reply = served.mcp_raw(message, &[]);
    assert_eq!(reply.header("content-type"), Some("text/event-stream"));
    assert!(reply.body.contains("notifications/progress") && reply.body.contains("structuredContent"));
}

#[test]
fn a_trace_that_is_written_to_is_asked_again() {
    let served = Start::default().serve();
    let names = || served.ask("sql", &json!({"sql": "SELECT DISTINCT comm FROM processes"})).json()["rows"].clone();
    let before = names();
    assert_eq!(names(), before);
    assert_ne!(before, json!([["renamed"]]));
    let writer = rusqlite::Connection::open(served.folder.path().join("demo.db")).unwrap();
    writer.execute("UPDATE processes SET comm = 'renamed'", []).unwrap();
    assert_eq!(names(), json!([["renamed"]]));
}

#[test]
fn the_dashboard_or_how_to_get_it_is_at_the_root() {
    let served: Served = Start { token: Some(support::TOKEN), ..Start::default() }.serve();
    let page = served.get("/");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'self'") && !policy.contains("unsafe"));
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(page.header("referrer-policy"), Some("no-referrer"));
    assert!(page.header("access-control-allow-origin").is_none());
}
