/** Answers `/api` from fixtures while there is no server: `npm run dev`. */

import type { Plugin } from "vite";
import { answer } from "./fixtures";

export function answerFixtures(): Plugin {
  return {
    name: "plait-fixtures",
    configureServer(server) {
      server.middlewares.use((request, response, next) => {
        const url = new URL(request.url ?? "/", "http://page.invalid");
        if (!url.pathname.startsWith("/api/")) return next();
        if (url.pathname === "/api/feed") {
          response.writeHead(200, { "Content-Type": "text/event-stream" });
          response.write(": fixtures have no news\n\n");
          return;
        }
        const found = answer(url);
        response.statusCode = found === undefined ? 404 : 200;
        response.setHeader("Content-Type", "application/json");
        response.end(
          JSON.stringify(found ?? { error: "UnknownPlace", message: `The fixtures have no ${url.pathname}.`, next: "" }),
        );
      });
    },
  };
}
