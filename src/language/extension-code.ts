import { AsyncLocalStorage } from 'node:async_hooks'

/*
 * Which extension's code runs, also in what it has begun and not awaited, and in its timers: what fails there fails outside of
 * every call that could name it.
 */

const running = new AsyncLocalStorage<string>()

/** Runs code of an extension by its name. */
export const asExtension = <Result>(name: string, work: () => Result): Result => running.run(name, work)

/** The extension whose code has led here; undefined in the platform's own. */
export const runningExtension = (): string | undefined => running.getStore()
