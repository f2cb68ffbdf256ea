"""The options in the address of a database: what follows `?` enters, options of the Python clients leave.

Options have the names of libpq and of the MySQL clients. Those of the JDBC drivers that mean the same are understood, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

from schemas.errors import ConfigError

LIBPQ_DEFAULTS: Final[Mapping[str, str]] = {
    "hostaddr": "", "sslmode": "prefer", "sslrootcert": "", "sslcert": "", "sslkey": "", "sslcrl": "", "channel_binding": "prefer",
    "target_session_attrs": "any", "options": "", "passfile": "/dev/null/none",
}  # fmt: skip
"""Options that libpq takes from the environment (`PGHOSTADDR`, …) or a file of passwords, if they are not given.

An empty value means the same as no value, but the environment is not read.
"""
_LIBPQ: Final = (
    "sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword", "sslcrl", "connect_timeout", "application_name",
    "channel_binding", "gssencmode", "target_session_attrs", "tcp_user_timeout", "keepalives", "options",
)  # fmt: skip
_POSTGRES: Final[Mapping[str, str]] = {name: name for name in _LIBPQ} | {
    "applicationname": "application_name", "channelbinding": "channel_binding", "connecttimeout": "connect_timeout",
    "logintimeout": "connect_timeout",
}  # fmt: skip
_MYSQL: Final[Mapping[str, str]] = {
    "sslmode": "mode", "ssl-ca": "ca", "ssl-cert": "cert", "ssl-key": "key", "connecttimeout": "connect_timeout_s",
}  # fmt: skip
_MODES: Final = ("disabled", "preferred", "required", "verify_ca", "verify_identity")
_ON: Final = ("", "true", "yes")
_OFF: Final = ("false", "no")
_SWITCHES: Final = ("useSSL", "requireSSL", "verifyServerCertificate")
_LONGEST_S: Final = 31_536_000
_WITHOUT_EFFECT: Final = frozenset({
    # of both drivers
    "characterencoding", "ssl", "tcpkeepalive", "tcpnodelay",
    # of PostgreSQL's
    "adaptivefetch", "assumeminserverversion", "autosave", "binarytransfer", "cleanupsavepoints", "defaultrowfetchsize",
    "disablecolumnsanitiser", "loadbalancehosts", "loggerlevel", "logservererrordetail", "logunclosedconnections",
    "preferquerymode", "preparedstatementcachequeries", "preparedstatementcachesizemib", "preparethreshold", "receivebuffersize",
    "rewritebatchedinserts", "sendbuffersize", "stringtype",
    # of MySQL's
    "allowmultiqueries", "allowpublickeyretrieval", "autoreconnect", "cachecallablestmts", "cacheprepstmts",
    "cacheresultsetmetadata", "cacheserverconfiguration", "connectiontimezone", "createdatabaseifnotexist",
    "defaultfetchsize", "elidesetautocommits", "failoverreadonly", "maintaintimestats", "maxreconnects",
    "nullcatalogmeanscurrent", "prepstmtcachesize", "prepstmtcachesqllimit", "requiressl", "rewritebatchedstatements",
    "servertimezone", "tinyint1isbit", "usecompression", "usecursorfetch", "useinformationschema",
    "uselegacydatetimecode", "uselocalsessionstate", "uselocaltransactionstate", "useserverprepstmts", "usessl",
    "useunicode", "verifyservercertificate", "zerodatetimebehavior",
})  # fmt: skip
"""Options of the JDBC drivers that do not reach the clients."""
_ADVICE: Final[Mapping[str, str]] = {
    "clientcertificatekeystoreurl": "write ssl-cert=<file.pem> and ssl-key=<file.pem>",
    "currentschema": "write options=-c%20search_path%3D<schema>",
    "sessionvariables": "leave it out, and set the variables on the server",
    "sockettimeout": "leave it out: a statement may take as long as it needs, while the server is there",
    "sslfactory": "write sslmode=verify-full and sslrootcert=<file.pem>",
    "targetservertype": "write target_session_attrs=<type>, as libpq has it: primary, standby, any",
    "trustcertificatekeystoreurl": "write sslMode=VERIFY_IDENTITY and ssl-ca=<file.pem>",
}


def url_options(kind: str, text: str, key: str) -> dict[str, str]:
    """Return the options of libpq for `postgresql`; else `mode`, `ca`, `cert` and `key` of `TlsSettings`, and `connect_timeout_s`.

    Raises `ConfigError` with the key for an unknown option. Its value is not in the message: it may be a secret.
    """
    known = _POSTGRES if kind == "postgresql" else _MYSQL
    given = {name.lower(): value for name, value in parse_qsl(text, keep_blank_values=True)}
    for name in given.keys() - known.keys() - _WITHOUT_EFFECT:
        advice = _ADVICE.get(name, f"leave it out; there are: {', '.join(known)}")
        raise ConfigError(f"{key}: the address has the unknown option {name} ({advice})")
    options = {known[name]: value for name, value in given.items() if name in known}
    return _postgres_options(options, given, key) if kind == "postgresql" else _mysql_options(options, given, key)


def _postgres_options(options: dict[str, str], given: Mapping[str, str], key: str) -> dict[str, str]:
    if "connect_timeout" in options:
        timeout_s = _number(options["connect_timeout"], f"{key}: the option connect_timeout is a number of seconds")
        options["connect_timeout"] = str(min(timeout_s, _LONGEST_S))
    ssl = given.get("ssl", "false").lower()
    if ssl not in ("", "true", "false"):
        raise ConfigError(f"{key}: the option ssl is true or false; write sslmode=verify-full for a certificate that is checked")
    is_verified = ssl != "false" or options.get("sslrootcert") == "system"  # has no weaker mode
    return {"sslmode": "verify-full", **options} if is_verified else options


def _mysql_options(options: dict[str, str], given: Mapping[str, str], key: str) -> dict[str, str]:
    switches = {name: given[name.lower()].lower() for name in _SWITCHES if name.lower() in given}
    for name, value in switches.items():
        if value not in (*_ON, *_OFF):
            raise ConfigError(f"{key}: the option {name} is true or false")
    on = {name for name, value in switches.items() if value in _ON}
    older = "verify_ca" if "verifyServerCertificate" in on else "required" if "requireSSL" in on else "preferred"
    options["mode"] = options.get("mode", "disabled" if switches.get("useSSL") in _OFF else older).lower()
    if options["mode"] not in _MODES:
        raise ConfigError(f"{key}: the option sslMode is one of {', '.join(_MODES).upper()}")
    if given.get("allowpublickeyretrieval", "").lower() in _OFF:
        message = "has no effect, because without TLS the key is always asked for: leave it out, and write sslMode=REQUIRED"
        raise ConfigError(f"{key}: the option allowPublicKeyRetrieval=false {message}")
    if "connect_timeout_s" in options:
        timeout = _number(options.pop("connect_timeout_s"), f"{key}: the option connectTimeout is a number of milliseconds")
        if timeout:  # else the time of the client
            options["connect_timeout_s"] = str(min(max(1, timeout // 1000), _LONGEST_S))
    return options


def _number(text: str, message: str) -> int:
    """Return a number without a sign; `ConfigError` with the message for any other text."""
    if re.fullmatch(r"[0-9]{1,18}", text) is None:
        raise ConfigError(message)
    return int(text)
