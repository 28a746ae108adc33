import type { RunInside } from '../../../adapters/isolate.ts'

/*
 * Runs INSIDE an isolate, before any script, and makes the globals of scripts. The functions here are sent there as
 * text, so they use nothing but each other, the language, and what `preludeSource` declares for them.
 */

// Taken before a script can change them: what crosses the border is judged by them.
const { parse, stringify } = JSON

/** The prelude's report of a script that has ended. */
export type Ended =
  | { readonly ok: true; readonly value?: unknown }
  | { readonly ok: false; readonly fault: 'thrown' | 'output'; readonly message: string; readonly stack?: string }

type Ask = (kind: string, args: readonly unknown[]) => Promise<unknown>

type HttpAnswer = {
  readonly status: number
  readonly statusText: string
  readonly headers: Readonly<Record<string, string>>
  readonly text: string
}

type Init = { readonly method?: string; readonly headers?: object; readonly body?: unknown }

type AxiosConfig = {
  readonly method?: string
  readonly baseURL?: string
  readonly url?: string
  readonly params?: object
  readonly headers?: object
  readonly data?: unknown
  readonly responseType?: string
  readonly validateStatus?: (status: number) => boolean
}
type Fetch = ReturnType<typeof fetchOf>

function textOf(value: unknown): string {
  if (typeof value === 'string') return value
  if (value instanceof Error) return String(value.stack ?? value)
  try {
    return stringify(value) ?? String(value)
  } catch {
    return String(value)
  }
}

function logOf(log: (level: string, text: string) => void, characters: number) {
  const write =
    (level: string) =>
    (...args: readonly unknown[]) =>
      log(level, args.map(textOf).join(' ').slice(0, characters))
  const [info, warn, error] = [write('info'), write('warn'), write('error')]
  return { info, warn, error, log: info, debug: info }
}

function askingOf(call: (kind: string, text: string) => Promise<string>, most: number): Ask {
  return async (kind, args) => {
    const text = stringify(args)
    if (text.length > most) throw new Error(`The value has more than ${most} characters of JSON`)
    const { value, error } = parse(await call(kind, text))
    if (error === undefined) return value
    throw Object.assign(new Error(error.message), error)
  }
}

function itemsOf(ask: Ask) {
  const names = ['read', 'readOne', 'create', 'update', 'delete', 'aggregate']
  const methods = names.map((name) => [name, (...args: readonly unknown[]) => ask(`items.${name}`, args)])
  return Object.freeze(Object.fromEntries(methods))
}

function fetchOf(ask: Ask) {
  return async (url: unknown, { method, headers, body }: Init = {}) => {
    const { text, ...answer } = (await ask('fetch', [{ url: String(url), method, headers, body }])) as HttpAnswer
    return {
      ...answer,
      ok: answer.status >= 200 && answer.status < 300,
      text: async () => text,
      json: async () => parse(text),
    }
  }
}

function addressOf({ baseURL = '', url = '', params = {} }: AxiosConfig): string {
  const query = Object.entries(params)
    .filter(([, value]) => value !== undefined && value !== null)
    .map(([name, value]) => `${encodeURIComponent(name)}=${encodeURIComponent(textOf(value))}`)
  const address = `${baseURL}${url}`
  return query.length === 0 ? address : `${address}${address.includes('?') ? '&' : '?'}${query.join('&')}`
}

/** A body that is not JSON stays text, as in axios. */
function readBody(text: string, responseType: unknown): unknown {
  if (responseType === 'text') return text
  try {
    return parse(text)
  } catch {
    return text
  }
}

function axiosOf(fetch: Fetch) {
  const request = async (config: AxiosConfig) => {
    const { method = 'get', headers, data } = config
    const isText = data === undefined || typeof data === 'string'
    const answer = await fetch(addressOf(config), {
      method: String(method).toUpperCase(),
      headers: { ...(isText ? {} : { 'content-type': 'application/json' }), ...headers },
      body: isText ? data : stringify(data),
    })
    const { status, statusText } = answer
    const body = readBody(await answer.text(), config.responseType)
    const response = { data: body, status, statusText, headers: answer.headers, config }
    const isValid = config.validateStatus ?? ((code: number) => code >= 200 && code < 300)
    if (isValid(status)) return response
    throw Object.assign(new Error(`Request failed with status code ${status}`), { status, response, config })
  }
  const axios = (first: string | AxiosConfig, config: AxiosConfig = {}) =>
    request(typeof first === 'string' ? { ...config, url: first } : first)
  const bare = (method: string) => (url: string, config?: AxiosConfig) => request({ ...config, method, url })
  const full = (method: string) => (url: string, data?: unknown, config?: AxiosConfig) =>
    request({ ...config, method, url, data })
  return Object.assign(axios, {
    request,
    ...Object.fromEntries(['get', 'delete', 'head', 'options'].map((method) => [method, bare(method)])),
    ...Object.fromEntries(['post', 'put', 'patch'].map((method) => [method, full(method)])),
  })
}

/** Timers are calls that the host answers late. */
function timersOf(ask: Ask) {
  const waiting = new Set<number>()
  let last = 0
  return {
    setTimeout(then: (...args: unknown[]) => void, ms = 0, ...args: unknown[]) {
      last += 1
      const id = last
      waiting.add(id)
      void ask('sleep', [Math.max(0, Number(ms) || 0)]).then(() => {
        if (waiting.delete(id)) then(...args)
      })
      return id
    },
    clearTimeout(id: number) {
      waiting.delete(id)
    },
  }
}

function extensionsOf(ask: Ask, names: Readonly<Record<string, readonly string[]>>) {
  const functionsOf = (module: string, functions: readonly string[]) =>
    functions.map((name) => [name, (...args: readonly unknown[]) => ask('module', [module, name, args])])
  return Object.fromEntries(
    Object.entries(names).map(([module, functions]) => [module, Object.fromEntries(functionsOf(module, functions))]),
  )
}

function failureOf(thrown: unknown): object {
  const { message, status, code, stack } = Object(thrown) as Record<string, unknown>
  return {
    message: (message === undefined ? textOf(thrown) : String(message)).slice(0, 2000),
    ...(typeof status === 'number' && { status }),
    ...(typeof code === 'string' && { code: code.slice(0, 100) }),
    ...(typeof stack === 'string' && { stack: stack.slice(0, 8000) }),
  }
}

function start(libraries: Readonly<Record<string, unknown>>): RunInside {
  // They take memory that no limit of the heap counts.
  for (const name of ['WebAssembly', 'SharedArrayBuffer', 'Atomics'])
    delete (globalThis as Record<string, unknown>)[name]
  return async (call, log, contextText, script) => {
    const { context, output, logCharacters, modules } = parse(contextText)
    const ask = askingOf(call, output)
    const fetch = fetchOf(ask)
    const axios = axiosOf(fetch)
    const console = logOf(log, logCharacters)
    const loadable: Record<string, unknown> = { ...extensionsOf(ask, modules), ...libraries, axios }
    const require = (name: string) => {
      if (Object.hasOwn(loadable, name)) return loadable[name]
      throw new Error(`There is no module '${name}': scripts may require ${Object.keys(loadable).join(', ')}`)
    }
    const own = { context, items: itemsOf(ask), fetch, axios, ...libraries, log: console, console, require }
    // A script may ask for them wherever it stands: they are undefined outside of a loop and of a catch.
    const outside = { loop: undefined, error: undefined }
    for (const [name, value] of Object.entries({ ...outside, ...context, ...own, ...timersOf(ask) }))
      Object.defineProperty(globalThis, name, { value, writable: true, configurable: true })
    try {
      const text = stringify({ ok: true, value: await script() })
      if (text.length <= output) return text
      return stringify({ ok: false, fault: 'output', message: `The result has more than ${output} characters of JSON` })
    } catch (thrown) {
      return stringify({ ok: false, fault: 'thrown', ...failureOf(thrown) })
    }
  }
}

const parts = [
  ...[textOf, logOf, askingOf, itemsOf, fetchOf, addressOf, readBody, axiosOf, timersOf, extensionsOf, failureOf],
  start,
]

/** Source of a function that makes the globals of scripts, of libraries by name, and returns what runs a script. */
export const preludeSource = `function (libraries) {
  'use strict';
  const { parse, stringify } = JSON;
  ${parts.join('\n')}
  return start(libraries);
}`
