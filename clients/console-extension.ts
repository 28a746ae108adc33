/**
 * How frames of extensions speak with the console: `const host = await connect()`. The console serves it as
 * `/console/extension.js`. Guide: docs/console-extensions.md.
 */
import {
  type Answer,
  type CallName,
  type Calls,
  type Context,
  type EditorContext,
  type ListQuery,
  type PageContext,
  protocolVersion,
  type Refusal,
  type ReportQuery,
  type Theme,
  type Told,
  type Unwelcome,
  type Welcome,
} from './console-messages.ts'

export type { Context, EditorContext, ListQuery, PageContext, Refusal, ReportQuery, Theme } from './console-messages.ts'

type Row = Readonly<Record<string, unknown>>
type Key = string | number

/** A refusal of the console or the server, or a missing answer. */
export class ExtensionError extends Error {
  override readonly name = 'ExtensionError'
  /** For programs, e.g. `FORBIDDEN`, `BUSY`, `NO_ANSWER`. */
  readonly code: string
  /** Of the server's answer; 0 where it was not asked. */
  readonly status: number
  readonly details: unknown

  constructor({ code, message, status, details }: Refusal) {
    super(message)
    this.code = code
    this.status = status
    this.details = details
  }
}

/** The console, as a frame sees it. Every method rejects with an {@link ExtensionError}. */
export type Host = {
  readonly context: Context
  /** As it is now; put on the page by itself. */
  readonly theme: Theme
  /** The rows of the collections that the manifest names, with the rights of whoever is signed in. */
  readonly items: {
    list<R extends Row = Row>(
      collection: string,
      query?: ListQuery,
    ): Promise<{ readonly data: readonly R[]; readonly totalCount?: number }>
    get<R extends Row = Row>(collection: string, id: Key, fields?: readonly string[]): Promise<R>
    /** The key of the new row. */
    create(collection: string, item: Row): Promise<Key>
    update(collection: string, id: Key, change: Row): Promise<void>
    delete(collection: string, id: Key): Promise<void>
  }
  readonly reports: {
    run<R extends Row = Row>(
      collection: string,
      query: ReportQuery,
    ): Promise<{ readonly data: readonly R[]; readonly totalCount?: number }>
  }
  /** Of editors: what the field is to hold. It is saved with the form. */
  readonly value: { set(value: unknown): Promise<void> }
  /** Of editors: how high the frame is to be, in pixels. */
  resize(height: number): Promise<void>
  /** Goes to an address of the console: `/data/book/7`. */
  navigate(to: string): Promise<void>
  /** Of pages: another path of its own in the address: `/2026?open=7`. `on('path')` is told, too. */
  setPath(path: string): Promise<void>
  /** Says something for a moment. */
  toast(title: string, text?: string): Promise<void>
  /** Calls when something changes in the console. Gives what ends that. */
  on<Name extends keyof Changes>(what: Name, listener: (change: Changes[Name]) => void): () => void
}

export type Changes = { theme: Theme; path: string; value: unknown }

/** A page of the console, or an editor: what else the context holds follows from `kind`. */
export type PageHost = Host & { readonly context: PageContext }
export type EditorHost = Host & { readonly context: EditorContext }

const answerWithinMs = 10_000

/**
 * Introduces the frame to the console around it, and puts the console's look on the page, now and whenever it changes. `Ctrl K`
 * opens the console's palette, as everywhere.
 *
 * @throws {ExtensionError} `NOT_FRAMED` outside the console, `NO_ANSWER` after ten seconds, `VERSION` where the console
 * speaks another version
 */
export async function connect(): Promise<Host> {
  if (window.parent === window) throw failed('NOT_FRAMED', 'This page is made to be shown by the console')
  const { welcome, port } = await greet()
  return openHost(welcome.context, port)
}

function greet(): Promise<{ welcome: Welcome; port: MessagePort }> {
  const { promise, resolve, reject } = Promise.withResolvers<{ welcome: Welcome; port: MessagePort }>()
  const listen = ({ source, origin, data, ports }: MessageEvent) => {
    // A frame of no origin of its own still knows where it came from.
    if (source !== window.parent || origin !== location.origin) return
    const answer = Object(data) as Welcome | Unwelcome
    if (answer.type === 'daybook.welcome' && ports[0] !== undefined) resolve({ welcome: answer, port: ports[0] })
    if (answer.type === 'daybook.unwelcome')
      reject(failed('VERSION', `The console speaks version ${answer.version}, this extension ${protocolVersion}`))
  }
  window.addEventListener('message', listen)
  const timer = setTimeout(() => reject(failed('NO_ANSWER', 'The console did not answer')), answerWithinMs)
  window.parent.postMessage({ type: 'daybook.hello', version: protocolVersion }, location.origin)
  return promise.finally(() => {
    clearTimeout(timer)
    window.removeEventListener('message', listen)
  })
}

function openHost(context: Context, port: MessagePort): Host {
  const calls = openCalls(port)
  const { ask, told } = calls
  const listeners: { [Name in keyof Changes]: Set<(change: Changes[Name]) => void> } = {
    theme: new Set(),
    path: new Set(),
    value: new Set(),
  }
  let theme = context.theme
  const hear = (message: Told | Answer) => {
    if (!('told' in message)) return calls.settle(message)
    if (message.told === 'ping') return port.postMessage(JSON.stringify({ pong: true }))
    if (message.told === 'theme') {
      theme = message.theme
      apply(theme)
      for (const listener of listeners.theme) listener(theme)
    } else if (message.told === 'path') for (const listener of listeners.path) listener(message.path)
    else for (const listener of listeners.value) listener(message.value)
  }
  port.onmessage = ({ data }: MessageEvent<string>) => hear(JSON.parse(data) as Told | Answer)
  apply(theme)
  openPaletteByKey(told)
  return {
    context,
    get theme() {
      return theme
    },
    items: itemCalls(calls),
    reports: { run: (collection, query) => ask('reports.run', { collection, query }) as Promise<never> },
    value: { set: (value) => told('value.set', { value }) },
    resize: (height) => told('resize', { height }),
    navigate: (to) => told('navigate', { to }),
    setPath: (path) => told('navigate', { to: `/extensions/${context.extension}${path}` }),
    toast: (title, text) => told('toast', { title, ...(text !== undefined && { text }) }),
    on(what, listener) {
      listeners[what].add(listener)
      return () => void listeners[what].delete(listener)
    },
  }
}

/** Calls of the console over a port, and the answers that they wait for. */
function openCalls(port: MessagePort) {
  const waiting = new Map<number, { resolve(result: never): void; reject(error: ExtensionError): void }>()
  let last = 0
  const ask = <Name extends CallName>(call: Name, args: Calls[Name]['args']): Promise<Calls[Name]['result']> => {
    const { promise, resolve, reject } = Promise.withResolvers<Calls[Name]['result']>()
    last += 1
    port.postMessage(JSON.stringify({ id: last, call, args }))
    waiting.set(last, { resolve, reject })
    return promise
  }
  return {
    ask,
    /** For a call whose answer holds nothing. */
    told: async <Name extends CallName>(call: Name, args: Calls[Name]['args']): Promise<void> => {
      await ask(call, args)
    },
    settle(answer: Answer): void {
      const asked = waiting.get(answer.id ?? 0)
      waiting.delete(answer.id ?? 0)
      if (answer.ok) asked?.resolve(answer.result as never)
      else asked?.reject(new ExtensionError(answer.error))
    },
  }
}

type OpenCalls = ReturnType<typeof openCalls>

const itemCalls = ({ ask, told }: OpenCalls): Host['items'] => ({
  list: (collection, query = {}) => ask('items.list', { collection, query }) as Promise<never>,
  get: (collection, id, fields) =>
    ask('items.get', { collection, id, ...(fields !== undefined && { fields }) }) as Promise<never>,
  create: (collection, item) => ask('items.create', { collection, item }),
  update: (collection, id, change) => told('items.update', { collection, id, change }),
  delete: (collection, id) => told('items.delete', { collection, id }),
})

function openPaletteByKey(told: OpenCalls['told']): void {
  window.addEventListener('keydown', (event) => {
    if (!(event.metaKey || event.ctrlKey) || event.key.toLowerCase() !== 'k') return
    event.preventDefault()
    void told('palette', {})
  })
}

/** Puts a look on the page: `color-scheme`, and the tokens as custom properties. */
function apply({ scheme, tokens }: Theme): void {
  const { style } = document.documentElement
  style.colorScheme = scheme
  for (const [name, value] of Object.entries(tokens)) style.setProperty(`--${name}`, value)
}

const failed = (code: string, message: string) => new ExtensionError({ code, message, status: 0 })
