"""Where this server listens, and what is to be said where others than this machine can reach it."""

import ipaddress

from streamlit import config

LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
OPEN = (
    "This server listens on {where} and asks for no password: whoever reaches it can run kernels here and read every "
    "Run. Set a password (docs/security.md), or start it with --server.address 127.0.0.1."
)
GUARDED = "This server listens on {where}, and asks who comes to sign in{open}."
UNENCRYPTED = "; without TLS, here or in a proxy before it, all that is typed and shown can be read on the way"


def is_wide(address: str | None) -> bool:
    """Whether other machines may reach a server at this address; Streamlit takes none for every address it has."""
    if not address:
        return True
    if address.startswith("unix:") or address in LOCAL_NAMES:
        return False
    try:
        return not ipaddress.ip_address(address).is_loopback
    except ValueError:
        return True  # a name, which may mean any address


def address() -> str | None:
    """The address that this server was told to listen on."""
    found: str | None = config.get_option("server.address")
    return found


def warning(is_guarded: bool) -> str:
    """What pages and the log say of a server that others can reach; empty where only this machine can."""
    here = address()
    if not is_wide(here):
        return ""
    where = "every address of this machine" if here in (None, "", "0.0.0.0", "::") else here
    encrypted = config.get_option("server.sslCertFile")
    return (GUARDED if is_guarded else OPEN).format(where=where, open="" if encrypted else UNENCRYPTED)
