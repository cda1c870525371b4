"""acme2certifier as an authority for certificates, by https on a loopback port: it has renewal windows and profiles.

    authority.py FOLDER PORT DAYS

FOLDER has ca.pem and ca.key, which sign, and cert.pem and key.pem of the server itself. Certificates are valid for DAYS,
and are to be renewed within a day from half of that on. Every name counts as proved: it would ask at port 80.
"""

import os
import pathlib
import ssl
import sys
import wsgiref.simple_server

CONFIG = """
[Nonce]
nonce_check_disable: False

[CAhandler]
handler_module: acme2certifier.cahandlers.openssl_ca_handler
issuing_ca_key: {folder}/ca.key
issuing_ca_cert: {folder}/ca.pem
issuing_ca_crl: {folder}/crl.pem
cert_validity_days: {days}
cert_save_path: {folder}/issued

[DBhandler]
handler: wsgi
dbfile: {folder}/state.db

[Challenge]
challenge_validation_disable: True

[Order]
profiles: {{"tlsserver": "https://authority.test/tlsserver", "short": "https://authority.test/short"}}
profiles_check_disable: False

[Renewalinfo]
renewalthreshold_pctg: 50.0
renewal_window_duration: 1d
retry_after_timeout: 3600
"""


class Quiet(wsgiref.simple_server.WSGIRequestHandler):
    def log_message(self, *_):
        pass


def main():
    folder, port, days = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    (folder / "issued").mkdir(exist_ok=True)
    config = folder / "acme_srv.cfg"
    config.write_text(CONFIG.format(folder=folder, days=days))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    # Clients wait in the socket: the import takes seconds on a busy machine.
    server = wsgiref.simple_server.WSGIServer(("127.0.0.1", port), Quiet)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.base_environ["HTTPS"] = "on"
    # It reads these when it is imported. The second is for the names that nothing proves.
    os.environ["ACME_SRV_CONFIGFILE"] = str(config)
    os.environ["ACME2CERTIFIER_I_KNOW_THE_RISK"] = "1"
    from acme2certifier.share.acme2certifier_wsgi import application

    server.set_app(application)
    server.serve_forever()


if __name__ == "__main__":
    main()
