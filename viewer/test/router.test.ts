import { describe, expect, it } from "vitest";
import { formatAddress, parseAddress, sessionRoute, splitPlace } from "../src/base/router";

describe("addresses", () => {
  it("are places", () => {
    expect(parseAddress("/s/76de0d89@42/files/src/cart.py#L6")).toEqual(
      sessionRoute("76de0d89", 42, { tab: "files", path: "src/cart.py", line: 6 }),
    );
    expect(parseAddress("/s/76de0d89")).toEqual(sessionRoute("76de0d89", null));
    expect(parseAddress("/s/@")).toEqual(sessionRoute("@", null));
    expect(parseAddress("/s/@@7/raw")).toEqual(sessionRoute("@", 7, { tab: "raw" }));
    expect(parseAddress("/compare/a@3..b")).toEqual({ screen: "compare", left: "a@3", right: "b" });
    expect(parseAddress("/inbox")).toEqual({ screen: "inbox", session: "" });
    expect(parseAddress("/?q=status:waiting")).toEqual({ screen: "home", filter: "status:waiting" });
  });

  it("say the same when they are written and read", () => {
    const routes = [
      sessionRoute("team/web release", 3, { tab: "files", path: "a b/ü#?.py", line: 12 }),
      sessionRoute("x", 1, { tab: "files", path: "a%2Fb/%", against: "before" }),
      sessionRoute("x", null, { tab: "why", about: "cart.py:6" }),
      sessionRoute("x", 9, { tab: "influence", about: '"42" & more' }),
      { screen: "compare", left: "a@1", right: "b c" } as const,
      { screen: "home", filter: "tag:team=web cost:>1 ü" } as const,
      { screen: "verify", session: "a/b" } as const,
      { screen: "whatif", session: "a", seq: 4 } as const,
      { screen: "cost", session: "" } as const,
    ];
    for (const route of routes) expect(parseAddress(formatAddress(route))).toEqual(route);
  });

  it("that are none are lost, and break nothing", () => {
    for (const address of ["/s", "/s/", "/nowhere", "/compare/a", "/s/x@1/dance", "/%E0%A4%A", "/verify"])
      expect(["lost", "session"]).toContain(parseAddress(address).screen);
    expect(parseAddress("/s/x@1/dance").screen).toBe("lost");
  });

  it("keep an @ that is part of a name", () => {
    expect(splitPlace("a@b@12")).toEqual(["a@b", 12]);
    expect(splitPlace("@12")).toEqual(["@12", null]);
  });
});
