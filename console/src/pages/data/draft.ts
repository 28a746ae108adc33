import type { Field } from '../../app/definition.ts'
import { isStructured, parseValue } from './values.ts'

/** A row of another collection, as it is chosen. */
export type Choice = { readonly id: string | number; readonly title: string }

/** The edited value: a text that stands for it, and of a relation also the row that it names. */
export type Draft = {
  readonly text: string
  readonly choice?: Choice | null
  /** The value itself, where an editor of an extension has said it. */
  readonly exact?: { readonly value: unknown }
  /** The control has a part of a date, which is no text: without this it would look like none. */
  readonly isIncomplete?: boolean
}

type Drafted = Pick<Field, 'kind' | 'element'> & Partial<Pick<Field, 'relation'>>

/** The value that a draft stands for, in place of the one before. @throws {Error} in words for whoever typed it */
export function draftValue(field: Drafted, { text, exact, isIncomplete }: Draft, before?: unknown): unknown {
  if (exact !== undefined) return exact.value
  // An empty text is a value of a text, but the key of no row.
  if (field.relation !== undefined && text === '') return null
  if (isIncomplete) throw new Error(field.kind === 'date' ? 'This must be a date.' : 'This must be a date and a time.')
  return parseValue(field, text, before)
}

type Optional = Pick<Field, 'kind' | 'isRequired'>

/** Whether a value is an empty text where no value could be meant: only a user can say which. */
export const mayBeNone = ({ kind, isRequired }: Optional, value: unknown): boolean =>
  value === '' && !isRequired && (kind === 'text' || kind === 'long text')

/** No value, as it is chosen. */
export const noValue: Draft = { text: '', exact: { value: null } }

type Control = { readonly value: string; readonly validity: { readonly badInput: boolean } }

/** What a control holds after it was used: a date that lacks a part has a bad input and no value. */
export const draftOf = ({ value, validity }: Control) => ({
  text: value,
  ...(validity.badInput && { isIncomplete: true }),
})

/** Whether a text needs a control of several lines. One of a single line drops line breaks. */
export const hasLines = (field: Pick<Field, 'kind'>, text: string): boolean =>
  field.kind === 'long text' || isStructured(field) || (field.kind === 'text' && /[\r\n]/.test(text))

/** A typed text with the line breaks that it had before: a control of several lines makes all of them `\n`. */
export const withBreaksOf = (before: string, typed: string): string =>
  before.includes('\r\n') ? typed.replace(/\r?\n/g, '\r\n') : typed
