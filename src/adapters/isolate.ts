import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import type ivm from 'isolated-vm'
import { onFirstUse } from '../language/once.ts'

const isolatedVm = onFirstUse<typeof ivm>('isolated-vm')

/** Files of packages that are loaded into every isolate, as CommonJS modules of that name. */
type IsolateModules = Readonly<Record<string, string>>

type IsolateOptions = {
  /** The limit of the heap, in megabytes. Buffers and the engine's own memory do not count. */
  readonly memoryMb: number
  /**
   * Source of a function. It is called in the isolate, once, with the modules, before anything else; what it returns runs a
   * script: see {@link RunInside}.
   */
  readonly prelude: string
  readonly modules: IsolateModules
  /** The isolate cannot be trusted to be disposed of any more: the process has to end. */
  readonly onCatastrophe: (message: string) => void
}

/**
 * The prelude's result, as its own isolate sees it. Only text crosses: `call` answers the script's calls to its host,
 * `log` takes lines without an answer, `script` is the script itself, undefined if it is only to be parsed.
 */
export type RunInside = (
  call: (kind: string, text: string) => Promise<string>,
  log: (level: string, text: string) => void,
  contextText: string,
  script: () => Promise<unknown>,
) => Promise<string>

type ScriptHost = {
  call(kind: string, text: string): Promise<string>
  log(level: string, text: string): void
}

export type Isolate = {
  /**
   * The text that the prelude makes of the script's result. Rejects with a SyntaxError as {@link check}, and when the isolate is
   * disposed of meanwhile.
   */
  run(code: string, contextText: string, host: ScriptHost): Promise<string>
  /** @throws {SyntaxError} whose stack begins with `script.js:LINE` */
  check(code: string): void
  /** Its computing time, in milliseconds. */
  computedMs(): number
  /** Ends what runs in it. Does nothing the second time. */
  dispose(): void
}

/** The name of the script in stacks; its first line is 1. */
export const scriptName = 'script.js'

/**
 * Makes isolates that share nothing with this process or each other. The modules and the prelude are compiled once.
 * The package is optional: the first isolate throws where it could not be installed.
 */
export function openIsolates(options: IsolateOptions): { open(): Isolate } {
  const { memoryMb, onCatastrophe } = options
  let snapshot: ivm.ExternalCopy<ArrayBuffer> | undefined
  return {
    open() {
      const { Isolate } = isolatedVm()
      snapshot ??= Isolate.createSnapshot(sourcesOf(options))
      const isolate = new Isolate({ memoryLimit: memoryMb, snapshot, onCatastrophicError: onCatastrophe })
      return new OpenIsolate(isolate)
    },
  }
}

class OpenIsolate implements Isolate {
  readonly #isolate: ivm.Isolate
  readonly #context: ivm.Context
  readonly #runInside: ivm.Reference

  constructor(isolate: ivm.Isolate) {
    this.#isolate = isolate
    this.#context = isolate.createContextSync()
    this.#runInside = this.#context.evalSync('__start()', { reference: true })
  }

  check(code: string): void {
    this.#isolate.compileScriptSync(wrapped(code), { filename: scriptName, lineOffset: -1 })
  }

  async run(code: string, contextText: string, { call, log }: ScriptHost): Promise<string> {
    const { Callback, Reference } = isolatedVm()
    const script = await this.#isolate.compileScript(wrapped(code), { filename: scriptName, lineOffset: -1 })
    const entry = await script.run(this.#context, { reference: true })
    const args = [new Reference(call), new Callback(log, { ignored: true }), contextText, entry.derefInto()]
    const text: unknown = await this.#runInside.apply(undefined, args, { result: { promise: true, copy: true } })
    return text as string
  }

  computedMs(): number {
    return this.#isolate.isDisposed ? 0 : Number(this.#isolate.cpuTime) / 1e6
  }

  dispose(): void {
    if (!this.#isolate.isDisposed) this.#isolate.dispose()
  }
}

/** `await` is allowed in it, and `return`. */
const wrapped = (code: string): string => `(async function script() {\n${code}\n})`

function sourcesOf({ prelude, modules }: IsolateOptions): { code: string; filename: string }[] {
  const require = createRequire(import.meta.url)
  const loaded = Object.entries(modules).map(([name, path]) => ({
    filename: name,
    code: `(function () {
      const module = { exports: {} }, exports = module.exports;
      ${readFileSync(require.resolve(path), 'utf8')}
      ;(globalThis.__modules ??= {})[${JSON.stringify(name)}] = module.exports;
    }).call(globalThis)`,
  }))
  // A reference of the host cannot be in a snapshot, so it is handed in later, wrapped into a function.
  const start = `globalThis.__start = function () {
    const run = (${prelude})(globalThis.__modules);
    delete globalThis.__start;
    delete globalThis.__modules;
    return function (call, log, context, script) {
      const apply = call.apply.bind(call);
      const options = { result: { promise: true, copy: true } };
      return run((kind, text) => apply(undefined, [kind, text], options), log, context, script);
    };
  }`
  return [...loaded, { filename: 'prelude.js', code: start }]
}
