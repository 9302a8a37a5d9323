"""What secrets of many vendors look like: prefix, alphabet, length. Values are drawn, so that no file holds one.

The shapes are written here apart from the rules that find them.
"""

from __future__ import annotations

import base64
import hashlib
import random
import string
import uuid

from tachograph.runtime.redaction.kinds import KINDS

# a mail address is personal data, but no key, and stands in many harmless texts
KEY_KINDS = tuple(kind for kind in KINDS if kind != "email")

ALNUM, HEX = string.ascii_letters + string.digits, "0123456789abcdef"
LOWER, UPPER = string.ascii_lowercase + string.digits, string.ascii_uppercase + string.digits
ALPHABETS = {
    "A": ALNUM,
    "l": LOWER,
    "U": UPPER,
    "h": HEX,
    "H": HEX.upper(),
    "u": ALNUM + "_-",
    "b": ALNUM + "+/",
    "d": string.digits,
}
# parts are texts, with `·` for a space and `¶` for a line feed, or `alphabet:length`
TABLE = r"""
AKIA U:16 | ASIA U:16 | ABSK b:108 == | AIza u:35 | GOCSPX- u:28 | ya29. u:120 | 1//0 u:60 | AQ. u:50 |
DefaultEndpointsProtocol=https;AccountName=x;AccountKey= b:86 == | token:· A:32 | password·is· A:14 |
Endpoint=sb://x.example/;SharedAccessKeyName=n;SharedAccessKey= b:43 = | token·is· A:32 | x/?token= h:40 |
https://x.blob.example/c?sv=2024-01-01&sig= A:43 %3D | A:3 8Q~ u:34 | v1.0- h:24 - h:146 | LTAI A:20 |
AKID A:32 | dop_v1_ h:64 | HRKU- u:58 | fo1_ u:43 | fm2_ b:120 | vcp_ A:56 | nfp_ A:36 | rnd_ A:28 |
sbp_ h:40 | sb_secret_ u:31 | pscale_tkn_ u:43 | napi_ l:64 | SCW U:17 | A:14 .atlasv1. u:67 |
hvs. u:90 | dp.st. A:43 | dp.sa. A:43 | dapi h:32 | AVNS_ u:19 | cflt b:60 | ops_eyJ b:200 |
0. uuid . A:30 : b:22 == | tskey-auth- A:12 - A:32 | pul- h:40 | ghp_ A:36 | github_pat_ A:22 _ A:59 |
ghs_ A:36 | glpat- u:20 | glpat- u:27 . h:2 . l:9 | gloas- h:64 | GR1348941 u:20 | ATBB A:32 |
ATATT3 u:186 | sgp_ h:16 _ h:40 | CCIPAT_ A:22 _ h:40 | bkua_ h:40 | pat. u:22 . h:24 . A:20 |
API- U:27 | squ_ h:40 | AKCp A:69 | PMAK- h:24 - h:34 | npm_ A:36 | pypi-AgEIcHlwaS5vcmc u:120 |
rubygems_ h:48 | cio A:32 | dckr_pat_ u:27 | oy2 l:43 | CLOJARS_ l:60 | sk_live_ A:24 | rk_live_ A:99 |
whsec_ A:32 | EAAA u:60 | access_token$production$ l:16 $ h:32 | AQEqhm b:70 | access-sandbox- uuid |
rzp_live_ A:14 | FLWSECK- h:32 -X | pdl_live_apikey_ l:26 _ A:22 _ A:3 | shpat_ h:32 | EZAK A:54 |
shippo_live_ h:40 | duffel_live_ u:43 | xoxb- d:12 - d:12 - A:24 | xapp-1-A01- d:12 - h:64 |
xoxd- A:80 | xoxe-1- A:140 | d:10 :AA u:33 | SK h:32 | SG. u:22 . u:43 | key- h:32 | h:32 - h:8 - h:8 |
h:32 -us12 | xkeysib- h:64 - A:16 | re_ A:8 _ A:24 | pat-na1- uuid | 00D A:15 ! A:96 | sl.u. u:140 |
pat A:14 . h:64 | 2/ d:16 / d:16 : h:32 | pk_ d:8 _ U:32 | ATTA h:64 U:8 | lin_api_ A:40 | ntn_ A:46 |
figd_ u:43 | tfp_ u:59 | CFPAT- u:43 | pnu_ A:36 | dbtu_ u:40 | rdme_ l:70 | NRAK- U:27 |
h:36 FFFFNRAL | sntrys_ b:80 | sntryu_ h:64 | https:// h:32 @o1.ingest.example/42 | glsa_ A:32 _ h:8 |
glc_ b:60 | hcaik_ l:58 | essu_ b:60 | dt0c01. U:24 . U:64 | xaat- uuid | phx_ A:43 | sdk- uuid |
sk-proj- u:100 | sk-ant-api03- u:93 AA | hf_ A:34 | gsk_ A:52 | xai- A:80 | pplx- A:48 | r8_ A:37 |
sk-or-v1- h:64 | tgp_v1_ u:43 | fw_ A:24 | csk- l:48 | nvapi- u:64 | pa- u:43 | jina_ A:60 |
pcsk_ A:60 | lsv2_pt_ h:32 _ h:10 | sk_ h:48 | tvly- A:32 | fc- h:32 | apify_api_ A:36 | e2b_ h:40 |
rpa_ U:46 | AGE-SECRET-KEY-1 U:58 | https://hooks.slack.com/services/T U:8 /B U:8 / A:24 |
https://discord.com/api/webhooks/ d:18 / u:68 | "d":·" u:43 " | DB_PASSWORD= A:14 |
https://x.webhook.office.com/webhookb2/ uuid @ uuid /IncomingWebhook/ h:32 / uuid |
https://hooks.zapier.com/hooks/catch/ d:7 / l:12 / |
https://open.larksuite.com/open-apis/bot/v2/hook/ uuid | postgres://user: A:16 @db.example:5432/x |
mongodb+srv://user: A:16 @db.example/x | redis://: A:20 @cache.example:6379 |
Server=db;User=sa;Password= A:14 ;Encrypt=true | machine·h.example·login·me·password· A:14 |
//registry.example/:_authToken= uuid | CLOUDFLARE_API_TOKEN= u:40 | DD_API_KEY= h:32 |
password:· A:12 !9 | "api_key":·" A:32 " | X-Api-Key:· A:32 | aws_secret_access_key·=· b:40 |
Authorization:·Bearer· u:40 9 | client_secret·=· u:40 | ABIA U:16 | bedrock-api-key- b:60 |
amzn.mws. uuid | AAAA u:7 :APA91 u:134 | A:44 AZDO A:24 | A3- U:6 - U:11 - U:5 - U:5 - U:5 |
st. h:24 . h:32 . h:32 | SSWS·00 A:40 | snyk_uat. h:8 . u:60 | PMAT- U:26 | packagist_ack_ h:40 |
live_ A:30 | sk_sbox_ l:28 | shptka_ h:32 | MTA u:21 . u:6 . u:38 | md- u:22 | pk_ h:34 | dG9r b:56 |
lin_oauth_ h:64 | secret_ A:43 | fio-u- u:64 | eyJrIjoi b:80 | secret- A:44 | api_org_ A:34 | ak- A:22 |
esecret_ l:26 | m0- A:40 | https://x.westus.logic.azure.com/w?sp=1&sig= u:43 |
https://chat.googleapis.com/v1/spaces/A1/messages?key= u:39 |
https://maker.ifttt.com/trigger/e/with/key/ u:22 | https://hook.eu1.make.com/ l:32 |
https://chat.example/hooks/ l:26 | https://oapi.dingtalk.com/robot/send?access_token= h:64 |
https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key= uuid | "auth":·" b:40 " | x·--db-password· A:14 |
<password> A:14 </password> | <apiKey> A:32 </apiKey> | https:// A:40 @git.example/x.git | SMTP_PASS= A:14 |
"pass":·" A:14 " | name="password"·value=" A:14 " | -·name:·DB_PASSWORD¶··value:· A:14 | x·--api-key· A:32 |
JWT_SECRET= h:64 | SECRET_KEY_BASE= h:128 | circle-token:· h:40 | "client_secret":·" h:40 " | llx- A:48 |
sk_car_ A:24 | BBDC- b:44 | "name":"JWT_SECRET","value":" h:64 " | APP_KEY=base64: b:43 = |
"name":·"X_TOKEN",·"value":·" A:32 " | aws·configure·set·aws_secret_access_key· b:40 |
API_KEY= H:40 | X_TOKEN=" H:40 " | client_secret:· H:40 | UID=x;PWD=/ A:14 ; |
aws_session_token·=· b:120 | eyJ u:20 .eyJ u:60 . u:43 | b:64 ¶ b:64 ¶-----END·RSA·PRIVATE·KEY----- |
https://api.telegram.org/bot d:10 :AA u:33 /getMe | sk- h:32 | "Key":·"X_TOKEN",·"Value":·" A:32 " |
doo_v1_ h:64 | glwt- u:24 | sgp_ A:64 | cfut_ A:48 | AQVN u:36 | t1. u:60 . u:86 | Atzr| b:200 == |
amzn1.oa2-cs.v1. h:64 | 4b1d A:38 | tk-us- u:48 | sha256~ u:43 | zpka_ l:32 _ h:8 | dnkey- A:26 - A:52 |
secret-token: u:43 | authress_ A:12 . A:5 .acc- A:16 . b:43 | p8e- u:32 | perm: b:12 =. b:20 . A:30 |
1000. h:32 . h:32 | EAA A:180 | AAAAAAAAAAAAAAAAAAAAA A:90 | polar_oat_ A:43 |
sk.eyJ u:60 . u:22 | tr_prod_ A:24 | signkey-prod- h:64 | ico- A:32 | A:6 _ A:29 _mmk | sm_aat_ A:16 |
s-s4t2ud- h:64 | RGAPI- uuid | sk-lf- uuid | wandb_v1_ A:27 _ A:50 |
mysql·-uroot·-p A:14 | sshpass·-p·' A:14 '·ssh·h | docker·login·-u·x·-p· A:14 | htpasswd·-nb·x· A:14 |
curl·-s·h·-u·x: A:14 | echo· A:14 ·|·sudo·-S·x | Cookie:·a=b;·x= A:32 | Set-Cookie:·x= A:32 ;·Path=/ |
sessionid= l:32 | x?X-Amz-Signature= h:64 | "SecretString":·" A:32 " | $apr1$ A:8 $ A:22 | $2y$05$ A:53 |
db:5432:x:y: A:14 | IDENTIFIED·BY·' A:14 ' | Authorization:·Basic· b:60 | define('AUTH_KEY',·' A:32 '); |
-----BEGIN·OpenVPN·Static·key·V1-----¶ h:32 ¶ h:32 ¶-----END·OpenVPN·Static·key·V1----- |
-----BEGIN·RSA·PRIVATE·KEY-----¶ b:64 ¶ b:64 ¶-----END·RSA·PRIVATE·KEY----- |
-----BEGIN·PRIVATE·KEY-----¶ b:64 |
-----BEGIN+PRIVATE+KEY-----%0A A:64 %0A-----END+PRIVATE+KEY----- |
"SecretAccessKey":·" b:40 " | "SessionToken":·" b:120 " | curl·-u·bob: A:14 |
PuTTY-User-Key-File-3:·ssh-ed25519¶Private-Lines:·1¶ b:64 ¶Private-MAC:· h:64 |
----·BEGIN·SSH2·ENCRYPTED·PRIVATE·KEY·----¶ b:64 ¶----·END·SSH2·ENCRYPTED·PRIVATE·KEY·----
"""
SHAPES = TABLE.strip().replace("|\n", "| ").split(" | ")


def draw(shape: str, seed: str = "") -> tuple[str, str]:
    """Return a text of a shape, and the longest part of it that is drawn: that is what may not be left."""
    source = random.Random(shape + seed)
    out, drawn = "", ""
    for part in shape.split(" "):
        alphabet, _, length = part.partition(":")
        text = part.replace("·", " ").replace("¶", "\n")
        if part == "uuid":
            text = str(uuid.UUID(int=source.getrandbits(128), version=4))
            drawn = max(drawn, text, key=len)
        elif alphabet in ALPHABETS and length.isdigit():
            letters = [source.choice(ALPHABETS[alphabet]) for _ in range(int(length))]
            if len(letters) > 8:  # as in nearly all of this length: a digit early, a letter or digit last
                letters[3], letters[4] = "7", "a" if letters[4] in "-_" else letters[4]
                letters[-1] = "k" if alphabet in "Alub" else letters[-1]
            text = "".join(letters)
            drawn = max(drawn, text, key=len)
        out += text
    return out, drawn


ORDINARY = """
sk-button-primary-large-rounded|task-sk-2026-overview|sk-2026-overview-of-all-the-parts|Bearer of bad news
basic responsibilities of everyone|disk-a1b2c3d4e5f6a7b8c9d0e1
hf_model|a@|<secret|<secret:|token: none|-----BEGIN CERTIFICATE-----
md5 {md5}|{sha1}|{sha256}|{sha512}|sha256:{sha256}|{name}@sha256:{sha256}|"integrity": "sha512-{based}"|{based}
{name}==1.2.0 --hash=sha256:{sha256}|github.com/x/{name} v1.2.0 h1:{based}|checksum = "{sha256}"|commit {sha1}
index {sha1}..{sha256} 100644|{uuid}|run_id: {uuid}|@scope/{name}@1.2.3|{name}@^2.0.0|git@github.com:x/{name}.git
pkg:npm/%40scope/{name}@1.2.3|{name} @ git+https://github.com/x/{name}.git@v2|max_tokens: 12000|token_count=1223
https://example.org:8443/{name}/{sha1}?page=3&next=/basic|data:image/png;base64,{based}|api_key: ${API_KEY}
the password: required, at least 8 characters|api_key = os.environ["SERVICE_API_KEY"]|password = getpass.getpass()
"primary_key": "{name}_id"|2026-01-01T00:00:00.000Z|192.168.1.1:8080|arn:aws:s3:::bucket-{name}/key|key: {name}
curl -u 'me:****' https://host.test/|task-force-meeting-2026|risk-averse-investors-2026|disk-encryption-at-rest-with-luks2|xoxo-hugs-and-kisses-to-all
password = self.password|key_password=new_password,|private_key: x25519.X25519PrivateKey|https://u:***@host.test/
SSE_KEY = 'fs.s3.enableServerSideEncryption'|Authorization: AWS4-HMAC-SHA256 Credential=x|id="{uuid}"
PWD=/home/x/{name}-1|OLDPWD=/srv/{name}_2|"PWD": "/work/{name}"|"next_page_token": "{based}"
arn:aws:secretsmanager:eu-west-1:123456789012:secret:prod/{name}/db-AbCdE1|login bob password required
Bearer resource_metadata="https://h.test"|GPG_KEY=A035C8C19219BA821ECEA86B64E628F8D684696D
signingkey = A035C8C19219BA821ECEA86B64E628F8D684696D|password: YOUR_API_KEY_HERE|the password is sha256-hashed
x --password-stdin --token-file /run/{name}/token-1|<key>{name}</key>|docker run -p 127.0.0.1:8080:80/tcp x
x --key {name}.pem --secret id={name},src=/a-1 --token $API_TOKEN_1|ssh://git@h.test/{name}
postgres://app_user_2024_ro@h|sync_token: {name}{name}9|Cookie: theme=dark|Set-Cookie: lang=en; Max-Age=3600
https://h.test/x?page_token={based}&key=PROJ-1234&code=404|secret: projects/p1/secrets/{name}/versions/3
"resolved": "https://h.test/{name}/-/{name}-1.0.0.tgz#{sha1}"|.sk-fading-circle .sk-circle2 {transform: rotate(9deg)}
refs/heads/feature/{name}-1|icon-{name}@2x.png|ssh-ed25519 {based} someone|"etag": "W/\\"{md5}\\""|{cert}|{words}
""".strip().replace("\n", "|").split("|")  # fmt: skip


def ordinary() -> list[str]:
    """Return texts of public formats that are not secrets, always the same."""
    source = random.Random("ordinary")
    out = []
    for _ in range(12):
        data = source.randbytes(64)
        values = {name: hashlib.new(name, data).hexdigest() for name in ("md5", "sha1", "sha256", "sha512")}
        values |= {"name": "".join(source.choices(LOWER, k=8)), "uuid": str(uuid.UUID(bytes=data[:16]))}
        values |= {
            "based": base64.b64encode(data).decode(),
            "words": base64.b64encode(b"words of all kinds " * 4).decode(),
        }
        values["cert"] = base64.b64encode(b"-----BEGIN CERTIFICATE-----\n" + base64.b64encode(data)).decode()
        for text in ORDINARY:
            for name, value in values.items():
                text = text.replace(f"{{{name}}}", value)
            out.append(text)
    return out
