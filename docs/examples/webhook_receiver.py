"""Takes vqueue's webhooks: checks who sent them, and prints each event once.

OPENAI_WEBHOOK_SECRET=whsec_... python webhook_receiver.py PORT
"""

import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

from openai import InvalidWebhookSignatureError, OpenAI

client = OpenAI(api_key="not needed here")  # the secret is in OPENAI_WEBHOOK_SECRET
seen: set[str] = set()  # a real receiver keeps them in its database


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            event = client.webhooks.unwrap(body, dict(self.headers.items()))
        except (InvalidWebhookSignatureError, ValueError):
            self.send_response(401)
        else:
            if event.id not in seen:
                seen.add(event.id)
                print(event.type, event.data, flush=True)
            self.send_response(204)
        self.end_headers()


if __name__ == "__main__":
    HTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver).serve_forever()
