/** A component that is drawn again only if its properties change, or a signal that it reads. */

import { h, type Component, type FunctionComponent } from "preact";

function differs(old: object, next: object): boolean {
  const [one, two] = [old as Record<string, unknown>, next as Record<string, unknown>];
  const keys = Object.keys(two);
  return keys.length !== Object.keys(one).length || keys.some((key) => one[key] !== two[key]);
}

export function memo<P extends object>(draw: FunctionComponent<P>): FunctionComponent<P> {
  function Memo(this: Component<P>, props: P) {
    this.shouldComponentUpdate = (next) => differs(this.props, next);
    return h(draw as FunctionComponent<object>, props);
  }
  return Memo as unknown as FunctionComponent<P>;
}
