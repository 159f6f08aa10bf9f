/**
 * The single keys of the page: which there are, and how to turn them off. Speech input and
 * unsteady hands press such keys by mistake (WCAG 2.1.4).
 */
import { signal } from '@preact/signals';
import type { JSX } from 'preact';
import { useRef } from 'preact/hooks';

const KEPT = 'interlock-keys';

export const areKeysOn = signal(localStorage.getItem(KEPT) !== 'off');
areKeysOn.subscribe((areOn) => localStorage.setItem(KEPT, areOn ? 'on' : 'off'));

const KEYS: readonly (readonly [key: string, does: string])[] = [
  ['/', 'search'],
  ['j', 'the next run of the list'],
  ['k', 'the one before'],
  ['Enter', 'open it'],
  ['x', 'resolve it together with others'],
  ['Esc', 'leave the run'],
];

export function Keys(): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  return (
    <>
      <button
        type="button"
        class="icon-button keys"
        aria-label="Keys"
        title="Keys"
        onClick={() => dialog.current?.showModal()}
      >
        <kbd>/</kbd>
      </button>
      <dialog ref={dialog} aria-label="Keys">
        <form method="dialog">
          <h2>Keys</h2>
          <dl class="key-list">
            {KEYS.map(([key, does]) => (
              <div key={key}>
                <dt>
                  <kbd>{key}</kbd>
                </dt>
                <dd>{does}</dd>
              </div>
            ))}
          </dl>
          <label class="switch">
            <input
              type="checkbox"
              checked={areKeysOn.value}
              onChange={({ currentTarget }) => {
                areKeysOn.value = currentTarget.checked;
              }}
            />
            Single keys work anywhere on the page. Otherwise only in the list.
          </label>
          <div class="buttons">
            <button type="submit">Close</button>
          </div>
        </form>
      </dialog>
    </>
  );
}
