import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import { textOfHtml } from '../../../adapters/html-text.ts'
import { renderLiquid, TemplateError } from '../../../adapters/liquid.ts'
import { moduleFile } from '../../../language/child-process.ts'
import { isObject } from '../../../query/guards.ts'
import type { Template } from './built-in.ts'

/** Plain data; it is copied into the thread. */
export type RenderJob = {
  readonly template: Template
  readonly variables: object
  /** For `recordedSubject`: the same without secrets. */
  readonly recordedVariables?: object
}
export type RenderResult = RenderedMail & { readonly recordedSubject: string }
export type RenderAnswer = { readonly rendered: RenderResult } | { readonly problem: string }

type Renderer = {
  /**
   * Renders a mail within a second and 64 MB.
   *
   * @throws {TemplateError} for a template that is broken or needs more
   */
  render(job: RenderJob): Promise<RenderResult>
  close(): Promise<void>
}

/** Renders mails, in a thread of its own. */
export type MailRenderer = { readonly renderer: Renderer }

/** Real time: the thread does nothing else meanwhile. */
const deadlineMs = 1000
const resourceLimits = { maxOldGenerationSizeMb: 64, maxYoungGenerationSizeMb: 16, stackSizeMb: 4 }

/**
 * Renders templates in a thread of their own (ADR 0016): what one cannot end by itself ends with its thread, and
 * waiting jobs get a new one. Starts with the first job; does not keep the process alive while idle.
 */
export function openRenderer(): Renderer {
  let thread: Promise<Worker> | undefined
  let line: Promise<unknown> = Promise.resolve()
  const renderNow = async (job: RenderJob): Promise<RenderResult> => {
    thread ??= startThread()
    try {
      const answer = await answerOf(await thread, job)
      if ('rendered' in answer) return answer.rendered
      throw new TemplateError(answer.problem)
    } catch (error) {
      if (!(error instanceof TemplateError) || error instanceof OverrunError) await end()
      throw error
    }
  }
  const end = async () => {
    const ending = thread
    thread = undefined
    await (await ending?.catch(() => undefined))?.terminate()
  }
  return {
    render(job) {
      const result = line.then(() => renderNow(job))
      line = result.catch(() => undefined)
      return result
    },
    close: end,
  }
}

/** The thread was, or must be, ended. */
class OverrunError extends TemplateError {}

/** Knows nothing of the environment, so that no secret of it can be in its memory. */
async function startThread(): Promise<Worker> {
  const worker = new Worker(moduleFile(import.meta.dirname, 'render-thread'), {
    resourceLimits,
    env: {},
    execArgv: [],
    name: 'templates',
  })
  await once(worker, 'message')
  worker.unref()
  return worker
}

async function answerOf(worker: Worker, job: RenderJob): Promise<RenderAnswer> {
  const { promise, resolve, reject } = Promise.withResolvers<RenderAnswer>()
  const onError = (error: Error & { code?: string }) =>
    reject(error.code === 'ERR_WORKER_OUT_OF_MEMORY' ? new OverrunError('the template needs too much memory') : error)
  const onExit = () => reject(new Error('the thread of the templates has ended'))
  const overrun = () => reject(new OverrunError('the template takes longer than a second'))
  // An answer that has come while this thread was busy counts: it is read before the callbacks of setImmediate.
  const timer = setTimeout(() => setImmediate(overrun), deadlineMs)
  worker.ref()
  worker.once('message', resolve).once('error', onError).once('exit', onExit)
  try {
    worker.postMessage(job)
    return await promise
  } finally {
    clearTimeout(timer)
    worker.off('message', resolve).off('error', onError).off('exit', onExit)
    worker.unref()
  }
}

export type RenderedMail = { readonly subject: string; readonly html: string; readonly text: string }

const longestSubject = 250
/** Characters; mail programs cut off longer ones long before. */
const longestHtml = 1_000_000

/**
 * Subject and HTML rendered with Liquid, the text alternative made from the HTML. In the HTML all values are escaped;
 * the subject is one line without control characters. Runs in the thread of renderer.ts, because a template can cost
 * more than its limits count.
 *
 * @throws {TemplateError} when a template is broken or exceeds the limits
 */
export function renderTemplate({ subject, body }: Template, variables: object): RenderedMail {
  const html = renderLiquid(body, withNamedTenant(variables), 'html')
  if (html.length > longestHtml) throw new TemplateError('the mail is too long')
  return { subject: renderSubject(subject, variables), html, text: textOfHtml(html) }
}

/** @throws {TemplateError} */
export function renderSubject(source: string, variables: object): string {
  return oneLine(renderLiquid(source, withNamedTenant(variables), 'text'))
}

/** `{{ tenant }}` prints the name, and `{{ tenant.name }}` is a member. Made here: functions do not reach the thread. */
function withNamedTenant(variables: object): object {
  const { tenant } = variables as { readonly tenant?: unknown }
  if (!isObject(tenant)) return variables
  const named = Object.create({ toString: () => String(tenant.name ?? '') })
  return { ...variables, tenant: Object.assign(named, tenant) }
}

/** Fit for a header: no line breaks, no control or direction characters, bounded. */
export function oneLine(text: string): string {
  return text
    .replace(/[\p{Cc}\s\u200e\u200f\u202a-\u202e\u2066-\u2069]+/gu, ' ')
    .trim()
    .slice(0, longestSubject)
}
