import { renderLiquid } from '../../adapters/liquid.ts'
import { builtInTemplates, type TemplateType } from './built-in.ts'
import { textOf } from './text.ts'

export type { TemplateType } from './built-in.ts'

export type RenderedMail = { readonly subject: string; readonly html: string; readonly text: string }

const longestSubject = 250

/**
 * A mail of the type: subject and HTML rendered with Liquid, the text alternative made from the HTML. In the HTML all
 * values are escaped; the subject is one line without control characters. `subject` replaces the template's.
 *
 * @throws {TemplateError} when a template is broken or exceeds the limits
 */
export function renderMail(type: TemplateType, variables: object, subject = subjectOf(type)): RenderedMail {
  const html = renderLiquid(builtInTemplates[type].body, variables, 'html')
  return { subject: renderSubject(subject, variables), html, text: textOf(html) }
}

/** @throws {TemplateError} */
export function renderSubject(source: string, variables: object): string {
  return oneLine(renderLiquid(source, variables, 'text'))
}

/** The subject before its variables are known. */
export function subjectOf(type: TemplateType): string {
  return builtInTemplates[type].subject
}

/** Fit for a header: no line breaks, no control or direction characters, bounded. */
export function oneLine(text: string): string {
  return text
    .replace(/[\p{Cc}\s\u200e\u200f\u202a-\u202e\u2066-\u2069]+/gu, ' ')
    .trim()
    .slice(0, longestSubject)
}
