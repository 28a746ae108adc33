import type { ready } from '../../../language/child-pool-step.ts'

/* The messages between the pool of scripts and its processes: data and text, never code of ours. */

export type ScriptLimits = {
  /** Milliseconds of processor time. */
  readonly computeMs: number
  /** Milliseconds from beginning to end. */
  readonly passedMs: number
  /** Megabytes that it may take: half of it for its heap. */
  readonly memoryMb: number
  /** Characters of JSON: of the result, and of what goes into a call or comes out of it. */
  readonly output: number
}

/** How much a script may ask for. */
export const callLimits = { all: 1000, atOnce: 100 } as const

/** How much of what a script says is kept: lines, and characters of each. */
export const logLimits = { lines: 200, characters: 2000 } as const

export type LogLevel = 'info' | 'warn' | 'error'

/**
 * Why a script has no result. `thrown`: by itself; `syntax`: it could not be read; `computing`, `time`, `memory`, `output`: it
 * took more than its limit; `unavailable`: this machine cannot run scripts.
 */
type ScriptFault = 'thrown' | 'syntax' | 'computing' | 'time' | 'memory' | 'output' | 'unavailable'

export type ScriptFailure = {
  readonly fault: ScriptFault
  readonly message: string
  /** Lines of the script itself, the innermost first: `script.js:3:7`. */
  readonly stack?: readonly string[]
  /** Members of the thrown value, if it was an object that has them. */
  readonly status?: number
  readonly code?: string
}

export type ToScript =
  | {
      readonly kind: 'run'
      readonly code: string
      /** JSON of the script's context. */
      readonly context: string
      readonly limits: ScriptLimits
    }
  | { readonly kind: 'check'; readonly code: string }
  /** JSON of `{value}` or `{error}`. */
  | { readonly kind: 'answer'; readonly call: number; readonly text: string }

export type FromScript =
  | typeof ready
  | { readonly kind: 'call'; readonly call: number; readonly name: string; readonly text: string }
  | { readonly kind: 'log'; readonly level: LogLevel; readonly text: string }
  /** JSON of the result; undefined where it is none. `isWorn`: the process had better end. */
  | { readonly kind: 'done'; readonly text: string | undefined; readonly isWorn: boolean }
  | { readonly kind: 'failed'; readonly failure: ScriptFailure; readonly isWorn: boolean }

/** The text of an answer to a call that was refused. */
export const refusedCall = (message: string): string => JSON.stringify({ error: { message } })

/** The memory of a process before it has a script. Megabytes. */
export const emptyProcessMb = 110

/** The argument of a process: how many megabytes a script may take. */
export const memoryFlag = '--memory-mb='
