"""Hooks that do what the words of a call, a result or an answer ask for."""


def before_model(data):
    last = data["messages"][-1]["content"]
    return {"stop": "it says stop"} if "stop the run" in last else None


def before_call(data):
    text = data["call"]["arguments"].get("text", "")
    if text.startswith("change "):
        return {"arguments": {**data["call"]["arguments"], "text": text.removeprefix("change ")}}
    return {
        "deny me": {"deny": "it says | so"},
        "ask": {"escalate": "a person has to see it"},
        "odd": {"allow": True},
        "same": {"arguments": data["call"]["arguments"]},
        "many": {"deny": "a", "escalate": "b"},
        "list": ["deny"],
        "nothing": {},
    }.get(text)


def after_call(data):
    text = data["result"].get("text", "")
    if text == "raise":
        raise ValueError("secret words")
    return {
        "hide": {"result": {"text": "hidden"}},
        "tell": {"result": {"text": "someone@mail.test knows"}},
        "refuse": {"deny": "nobody may read it"},
        "misfit": {"result": {"number": 1}},
        "late": {"arguments": {"number": 1}},
    }.get(text)


def on_stop(data):
    said = {"send_back": "Say more."}
    return {"short": said, "odd": {"allow": True}, "late": {"arguments": {}}}.get(data["answer"])
