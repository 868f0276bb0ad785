"""Rules: what each command asks of the server, what it prints, and trials without a server."""

import json

from syncpoint.wire.protobuf.messages import admin

SUB = "projects/p/subscriptions/s"


def test_create_and_update_send_the_rule(server, run_json):
    words = ["--subscription", "s", "--filter", "n = @a", "--action", "SET x = @b"]
    for value in ("a=3", "b=text", "c=true", "d=2.5", "e=null"):
        words += ["--parameter", value]
    rule = admin.Rule(name="r", sql="n = @a", action="SET x = @b")
    rule.parameters["a"].integer, rule.parameters["b"].text, rule.parameters["c"].truth = 3, "text", True
    rule.parameters["d"].number = 2.5
    rule.parameters["e"].SetInParent()
    for command, method in (("create", "CreateRule"), ("update", "UpdateRule")):
        server.answers[f"Admin.{method}"] = lambda request: request.rule
        assert run_json("rules", command, "r", *words)["name"] == "r"
        request = server.request(f"Admin.{method}")
        assert (request.subscription, request.rule, request.scope) == (SUB, rule, admin.RuleScope.Value("NEW_MESSAGES"))


def test_correlation_and_all_messages(server, run):
    server.answers["Admin.CreateRule"] = lambda request: request.rule
    run("rules", "create", "r", "--subscription", "s", "--correlation", "sys.Label=x,a=b", "--all-messages")
    request = server.request("Admin.CreateRule")
    assert request.rule.correlation.properties == {"sys.Label": "x", "a": "b"}
    assert request.scope == admin.RuleScope.Value("ALL_MESSAGES")
    both = run("rules", "create", "r", "--subscription", "s", "--correlation", "a=b", "--filter", "1=1")
    assert both.exit_code == 2


def test_list_and_delete(server, run):
    found = admin.ListRulesResponse(rules=[{"name": "a", "sql": "n = 1"}, {"name": "b", "action": "SET x = 1"}])
    found.rules[1].correlation.properties["colour"] = "red"
    server.answers["Admin.ListRules"] = found
    listed = run("rules", "list", "--subscription", "s").stdout
    assert "n = 1" in listed
    assert "colour is 'red'" in listed
    assert "PARAMETERS" not in listed
    server.answers["Admin.DeleteRule"] = admin.DeleteRuleResponse()
    assert "Deleted rule [$Default]" in run("rules", "delete", "$Default", "--subscription", "s").stderr
    assert server.request("Admin.DeleteRule").name == "$Default"


def test_a_rule_is_tried_without_a_server(run, run_json, tmp_path):
    words = ["--filter", "replicated IS NULL OR replicated <> 1", "--action", "set replicated = 1"]
    once = run_json("rules", "test", *words, "--attribute", "a=1")
    assert once["copies"][0]["attributes"] == {"a": "1", "replicated": "1", "RuleName": "tried"}
    file = tmp_path / "message.json"
    file.write_text(json.dumps(once["copies"][0]))
    again = run("rules", "test", *words, "--message", str(file), "--explain")
    assert again.exit_code == 1
    assert "'1'" in again.stdout
    body = run("rules", "test", "--filter", "body.total > 100", "--data", '{"total": 120}')
    assert body.exit_code == 0
    wrong = run("rules", "test", "--filter", "body.total >")
    assert "ends too early" in wrong.stderr


def test_the_rules_of_a_subscription_are_tried_by_the_server(server, run):
    server.answers["Admin.TestRule"] = admin.TestRuleResponse(
        parts=[{"rule": "a", "text": "n = 1", "result": "unknown"}]
    )
    result = run("rules", "test", "--subscription", "s", "--attribute", "n=1", "--explain")
    assert result.exit_code == 1
    assert "unknown" in result.stdout
    request = server.request("Admin.TestRule")
    assert (request.subscription, request.explain, request.HasField("rule")) == (SUB, True, False)
    assert request.message.attributes == {"n": "1"}
