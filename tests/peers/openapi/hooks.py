"""A check of schemathesis: an answer is what the server's document says, as it is written there."""

import json
import os
from functools import cache

import jsonschema_rs
import schemathesis

JSON = "application/json"
# Its files begin with these bytes.
SQLITE = ("application/vnd.sqlite3", b"SQLite format 3\0")


@cache
def document():
    with open(os.environ["DOCUMENT"]) as file:
        return json.load(file)


@cache
def described(path, method, status):
    return document()["paths"][path][method]["responses"][status]["content"]


@cache
def validator(path, method, status):
    schema = described(path, method, status)[JSON]["schema"]
    return jsonschema_rs.Draft202012Validator({**schema, "components": document()["components"]})


@schemathesis.check
def answers_are_as_described(ctx, response, case):
    operation = document()["paths"][case.operation.path].get(case.method.lower())
    if operation is None:
        assert response.status_code == 405, f"{case.method} is not described and has status {response.status_code}"
        return
    status = str(response.status_code)
    assert status in operation["responses"], f"status {status} is not described"
    asked = (case.operation.path, case.method.lower(), status)
    kind = response.headers["content-type"][0]
    assert kind in described(*asked), f"{kind} is not described"
    if kind == JSON:
        validator(*asked).validate(json.loads(response.content))
    else:
        assert (kind, response.content[:16]) == SQLITE, f"{kind} begins with {response.content[:16]}"
