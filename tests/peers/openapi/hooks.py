"""A check of schemathesis: an answer is what the server's document says, as it is written there."""

import json
import os
from functools import cache

import jsonschema_rs
import schemathesis


@cache
def document():
    with open(os.environ["DOCUMENT"]) as file:
        return json.load(file)


@cache
def validator(path, method, status):
    described = document()["paths"][path][method]["responses"][status]
    schema = described["content"]["application/json"]["schema"]
    return jsonschema_rs.Draft202012Validator({**schema, "components": document()["components"]})


@schemathesis.check
def answers_are_as_described(ctx, response, case):
    operation = document()["paths"][case.operation.path].get(case.method.lower())
    if operation is None:
        assert response.status_code == 405, f"{case.method} is not described and has status {response.status_code}"
        return
    status = str(response.status_code)
    assert status in operation["responses"], f"status {status} is not described"
    validator(case.operation.path, case.method.lower(), status).validate(json.loads(response.content))
