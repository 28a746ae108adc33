import { textOfHtml } from '../../../adapters/html-text.ts'
import { renderLiquid, TemplateError } from '../../../adapters/liquid.ts'
import type { Template } from './built-in.ts'

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
  const html = renderLiquid(body, variables, 'html')
  if (html.length > longestHtml) throw new TemplateError('the mail is too long')
  return { subject: renderSubject(subject, variables), html, text: textOfHtml(html) }
}

/** @throws {TemplateError} */
export function renderSubject(source: string, variables: object): string {
  return oneLine(renderLiquid(source, variables, 'text'))
}

/** Fit for a header: no line breaks, no control or direction characters, bounded. */
export function oneLine(text: string): string {
  return text
    .replace(/[\p{Cc}\s\u200e\u200f\u202a-\u202e\u2066-\u2069]+/gu, ' ')
    .trim()
    .slice(0, longestSubject)
}
