"""The probes of the public BEST validator, written anew from the checklist of what it probes (0.9.18).

`validate(url)` walks any door over HTTP as that program does and says what it found. A door passes with no
`fail`, and ours with no `warn` either. Synchronous on purpose: a stranger to the door, in a thread of its
own.
"""

import json
import re
import ssl
from typing import Any
from urllib.parse import quote, urlsplit

import attrs
import httpx

from tests.support.best_schemas import best_errors, guidance
from tests.support.probes import Check, Level, Probe, Surface, json_of, strings_in, type_of

DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_AGENTS = "io.best.agents."
_ROUTES = ("commands", "events", "queries", "workflows")
_IN_DESCRIPTION = {
    "a URL": re.compile(r"https?://|\bwww\."),
    "a URI template": re.compile(r"\{\w+\}"),
    "a credential format": re.compile(r"\b(?:Authorization|Bearer)\b"),
    "a header name": re.compile(r"\bX-[A-Z][A-Za-z]+(?:-[A-Z][A-Za-z]+)*\b"),
}
_PSEUDO_TENANT = re.compile(r"public|default|anonymous|guest|none|shared|global", re.IGNORECASE)


def validate(
    url: str,
    *,
    api_key: str | None = None,
    tenant: str | None = None,
    probe_registration: bool = False,
    verify: ssl.SSLContext | bool = True,
    timeout: float = 10.0,
) -> list[Check]:
    """Probe the door at `url` as the public validator would; `api_key` goes as the manifest's block says."""
    with httpx.Client(verify=verify, timeout=timeout, follow_redirects=True, trust_env=False) as client:
        probe = Probe(client)
        _Run(probe, url.rstrip("/"), api_key, tenant, probe_registration).all()
    return probe.checks


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


@attrs.define
class _Run:
    probe: Probe
    url: str
    key: str | None
    tenant: str | None
    registers: bool
    registered: set[str] = attrs.field(factory=set)

    def all(self) -> None:
        root = self.manifest("discovery", f"{self.url}/.well-known/best", {})
        if root is None:
            return
        scoped = self.tenancy(root)
        self.discipline(root, scoped)
        if scoped:
            self.discipline(scoped, None)
        self.registration(root, at_root=True)
        if scoped:
            self.registration(scoped, at_root=False)
        for manifest in (root, scoped) if scoped else (root,):
            for capability in manifest["capabilities"]:
                self.capability(manifest, capability)
        self.descriptions(root, scoped)
        self.single_entry()

    def manifest(self, section: str, url: str, headers: dict[str, str]) -> dict[str, Any] | None:
        answer = self.probe.ask(section, "GET", url, headers=headers)
        if answer is None or not self.probe.expect(
            section, answer.status_code == 200, f"{url}: {answer.status_code}"
        ):
            return None
        kind = type_of(answer)
        self.probe.expect(section, kind == "application/json", f"content type {kind}", otherwise="warn")
        document = json_of(answer)
        if not self.probe.expect(
            section, isinstance(document, dict) and "best" in document, "JSON with `best`"
        ):
            return None
        errors = best_errors("discovery.json", document)
        self.probe.expect(section, not errors, "; ".join(errors) or "the manifest fits its schema")
        return document["best"] if not errors else None

    def tenancy(self, root: dict[str, Any]) -> dict[str, Any] | None:
        section = "tenancy"
        template = root.get("tenants", {}).get("manifest")
        if template is None:
            self.probe.say(section, "skip", "no tenants")
            return None
        if not self.probe.expect(section, "{tenantId}" in template, f"template {template}"):
            return None
        for one in root["capabilities"]:
            scoped = one["name"].removeprefix(_AGENTS) in _ROUTES
            if scoped and "authentication" not in self.service(root, one)[1]:
                self.probe.say(section, "warn", f"{one['name']} is tenant-scoped and stands at the root")
        if self.tenant is None:
            self.probe.say(section, "skip", "no tenant given")
            return None
        url = template.replace("{tenantId}", quote(self.tenant, safe=""))
        scoped_manifest = self.manifest(section, url, self.credential(root.get("authentication", {})))
        if scoped_manifest is not None:
            text = json.dumps(scoped_manifest)
            self.probe.expect(section, "{tenantId}" not in text, "no {tenantId} left in it")
            self.probe.expect(section, "tenants" not in scoped_manifest, "no tenants within it")
        return scoped_manifest

    def service(self, best: dict[str, Any], capability: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        keys = [key for key in best["services"] if capability["name"].startswith(f"{key}.")]
        key = capability.get("service") or (keys[0] if len(keys) == 1 else "")
        return key, best["services"].get(key, {})

    def credential(self, block: dict[str, Any]) -> dict[str, str]:
        if self.key is None or block.get("type", "none") == "none":
            return {}
        if block["type"] == "apiKey":
            return {block.get("scheme", "X-Api-Key"): self.key}
        return {"Authorization": f"{block.get('scheme', 'Bearer')} {self.key}"}

    def discipline(self, best: dict[str, Any], scoped: dict[str, Any] | None) -> None:
        section = "discipline"
        announced = best["capabilities"] + (scoped["capabilities"] if scoped else [])
        used = {self.service({"services": best["services"]}, one)[0] for one in announced}
        for key in best["services"] if scoped or "tenants" not in best else ():
            self.probe.expect(section, key in used, f"{key} has a capability", otherwise="warn")
        for path, text in strings_in(best):
            if re.match(r"https?://", text) and "{" in text and path != "/tenants/manifest":
                self.probe.say(section, "warn", f"{path} is a template")
            if path.endswith("/description"):
                self.probe.expect(
                    section, len(text) <= 500, f"{path}: {len(text)} characters", otherwise="warn"
                )
                for what, pattern in _IN_DESCRIPTION.items():
                    if pattern.search(text):
                        self.probe.say(section, "warn", f"{path} holds {what}")
        endpoints = [one.get("http", {}).get("endpoint", "").rstrip("/") for one in best["services"].values()]
        for endpoint in endpoints:
            above, _, last = endpoint.rpartition("/")
            if _PSEUDO_TENANT.fullmatch(last) and (above.endswith("/tenants") or above in endpoints):
                self.probe.say(section, "warn", f"{endpoint} ends in a tenant that is none")

    def registration(self, best: dict[str, Any], *, at_root: bool) -> None:
        section = "registration"
        blocks = [one.get("authentication", {}) for one in (best, *best["services"].values())]
        urls = [block["deviceAuthorizationUrl"] for block in blocks if "deviceAuthorizationUrl" in block]
        if at_root and not urls and any(block.get("type", "none") != "none" for block in blocks):
            self.probe.say(section, "warn", "a credential is needed and nothing says how an agent gets one")
        for block in blocks:
            url = block.get("deviceAuthorizationUrl")
            if url is None or url in self.registered:
                continue
            self.registered.add(url)
            allowed = self.texts("manifest", best["version"])
            self.probe.expect(
                section, block.get("note") in allowed, "note is the manifest text of this version"
            )
            if self.probe.expect(section, "tokenUrl" in block, "tokenUrl beside deviceAuthorizationUrl"):
                self.token_url(block["tokenUrl"])
            if self.registers:
                self.device_url(url, best["version"])

    def texts(self, which: str, declared: str) -> set[str]:
        words = guidance(which)
        current = max((v for v in words if _numbers(v) <= _numbers(declared)), key=_numbers, default="0")
        return {text for version, text in words.items() if _numbers(version) >= _numbers(current)}

    def token_url(self, url: str) -> None:
        section = "registration"
        form = {
            "grant_type": DEVICE_GRANT,
            "device_code": "best-validate-unknown",
            "client_id": "best-validate",
        }
        answer = self.probe.ask(section, "POST", url, data=form)
        if answer is not None:
            error = (json_of(answer) or {}).get("error")
            wrong = error == "unsupported_grant_type" or answer.status_code in {404, 405, 501}
            known = error in {"invalid_grant", "expired_token"}
            said = f"tokenUrl, unknown code: {answer.status_code} {error}"
            self.probe.expect(section, known, said, otherwise="fail" if wrong else "warn")
        self.not_a_form(url)

    def not_a_form(self, url: str) -> None:
        answer = self.probe.ask("registration", "POST", url, json={"client_id": "best-validate"})
        if answer is not None:
            error = (json_of(answer) or {}).get("error")
            refused = answer.status_code == 400 and error == "invalid_request"
            said = f"{url}, JSON body: {answer.status_code} {error}"
            self.probe.expect("registration", refused, said, otherwise="warn")

    def device_url(self, url: str, declared: str) -> None:
        section = "registration"
        self.not_a_form(url)
        form = {"client_id": "best-validate", "agent_label": "best-validate", "connection": "Not One Word"}
        answer = self.probe.ask(section, "POST", url, data=form)
        if answer is not None:
            body = json_of(answer) or {}
            refused = answer.status_code == 400 and body.get("error") == "invalid_request"
            said = f"connection of three words: {answer.status_code} {body.get('error')}"
            level: Level = "fail" if _numbers(declared) >= (0, 9, 17) else "warn"
            self.probe.expect(section, refused and bool(body.get("error_description")), said, otherwise=level)
        answer = self.probe.ask(section, "POST", url, data={**form, "connection": "best-validate"})
        if answer is None:
            return
        body = json_of(answer)
        if not self.probe.expect(
            section, answer.status_code == 200 and isinstance(body, dict), "a form is taken"
        ):
            return
        for member in ("device_code", "user_code", "verification_uri", "expires_in"):
            self.probe.expect(section, member in body, f"{member} in the answer")
        code = body.get("device_code", "")
        self.probe.expect(
            section, body.get("note") in self.texts("device", declared), "note is the device text"
        )
        self.probe.expect(
            section, len(code) >= 20 and code != body.get("user_code"), "device_code is unguessable"
        )
        link = body.get("verification_uri_complete", "")
        self.probe.expect(section, not code or code not in link, "the person's link has no device_code")
        secure = body.get("verification_uri", "").startswith("https://")
        self.probe.expect(section, secure, "verification_uri is https", otherwise="warn")

    def capability(self, best: dict[str, Any], capability: dict[str, Any]) -> None:
        name = capability["name"].removeprefix(_AGENTS)
        if name == capability["name"] or name not in _ROUTES:
            return
        if capability.get("status", "active") != "active":
            self.probe.say(name, "skip", f"status {capability['status']}")
            return
        service = self.service(best, capability)[1]
        endpoint = service.get("http", {}).get("endpoint", "").rstrip("/")
        if not self.probe.expect(name, bool(endpoint), f"endpoint {endpoint!r}"):
            return
        block = service.get("authentication", best.get("authentication", {"type": "none"}))
        headers = {} if "authentication" in service else self.credential(block)
        bare = self.probe.ask(name, "GET", f"{endpoint}/{name}")
        if bare is None:
            return
        if block["type"] == "none":
            self.probe.expect(name, bare.status_code not in {401, 403}, f"answers bare: {bare.status_code}")
        else:
            self.probe.expect(name, bare.status_code != 200, f"bare: {bare.status_code}", otherwise="warn")
        if bare.status_code == 401 and not headers:
            self.probe.say(name, "pass", "asks for a credential, and none was given")
            return
        getattr(Surface(self.probe, name, endpoint, headers), name)()

    def descriptions(self, *manifests: dict[str, Any] | None) -> None:
        named = [name for name in self.probe.operations if "-" in name]
        for path, text in strings_in([one for one in manifests if one]):
            for name in named if path.endswith("/description") else ():
                if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text):
                    self.probe.say("discipline", "warn", f"{path} names the operation {name}")

    def single_entry(self) -> None:
        origin = "{0.scheme}://{0.netloc}".format(urlsplit(self.url))
        answer = self.probe.ask("single entry", "GET", f"{origin}/llms.txt")
        if answer is None:
            return
        told = answer.status_code == 200 and type_of(answer).startswith("text/")
        words = [*self.probe.operations, "/commands", "/queries", "/workflows"]
        repeats = told and any(word in answer.text for word in words)
        self.probe.expect("single entry", not repeats, "no llms.txt tells of operations", otherwise="warn")
