/** The pieces of a browser that the modules under test touch when they are loaded. */

const place = { protocol: "http:", pathname: "/", search: "", hash: "", origin: "http://page.invalid" };
Object.assign(globalThis, { location: place, document: { querySelector: () => null } });
