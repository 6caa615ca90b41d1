/** A native dialog that is open while it is drawn. */

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

interface DialogProps {
  readonly title: string;
  readonly onClose: () => void;
  readonly children: ComponentChildren;
  readonly class?: string;
}

export function Dialog({ title, onClose, children, class: extra = "" }: DialogProps) {
  const box = useRef<HTMLDialogElement>(null);
  // Before the next key is pressed: it belongs to the dialog.
  useLayoutEffect(() => {
    const before = document.activeElement;
    const element = box.current!;
    element.showModal();
    return () => {
      element.close();
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={box}
      class={extra}
      aria-label={title}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClick={(event) => {
        if (event.target === box.current) onClose();
      }}
    >
      <div class="dialog-body">
        <h2 class="dialog-head">{title}</h2>
        {children}
      </div>
    </dialog>
  );
}
