import { type ComponentProps, type ReactNode, useId } from 'react'
import styles from './field.module.css'

type Around = {
  readonly label: ReactNode
  /** Beside the label, e.g. a type. */
  readonly note?: ReactNode
  readonly hint?: ReactNode
  readonly error?: string | undefined
}

/** What ties a control to its label, hint and error. */
export type FieldAttributes = {
  readonly id: string
  readonly 'aria-describedby': string | undefined
  readonly 'aria-invalid': boolean | undefined
}

type FieldProps = Around & {
  /** Makes the control. */
  readonly children: (attributes: FieldAttributes) => ReactNode
}

/** A control with its label, its hint and what is wrong with its value. */
export function Field({ label, note, hint, error, children }: FieldProps) {
  const id = useId()
  const describedBy = [hint !== undefined && `${id}-hint`, error !== undefined && `${id}-error`].filter(Boolean)
  return (
    <div className={styles.field}>
      <label className={styles.label} htmlFor={id}>
        {label}
        {note !== undefined && <small>{note}</small>}
      </label>
      {children({
        id,
        'aria-describedby': describedBy.length > 0 ? describedBy.join(' ') : undefined,
        'aria-invalid': error === undefined ? undefined : true,
      })}
      {hint !== undefined && (
        <span id={`${id}-hint`} className={styles.hint}>
          {hint}
        </span>
      )}
      {error !== undefined && (
        <span id={`${id}-error`} className={styles.error} role="alert">
          {error}
        </span>
      )}
    </div>
  )
}

type Size = { readonly size?: 's' | 'm' }

export function Input({ className, size, ...rest }: Omit<ComponentProps<'input'>, 'size'> & Size) {
  return <input {...rest} className={`${styles.input} ${className ?? ''}`} data-size={size} />
}

export function TextArea({ className, isCode, ...rest }: ComponentProps<'textarea'> & { readonly isCode?: boolean }) {
  return (
    <textarea
      spellCheck={isCode ? false : undefined}
      {...rest}
      className={`${styles.input} ${className ?? ''}`}
      data-code={isCode}
    />
  )
}

type Option = string | { readonly value: string; readonly label: string }
type SelectProps = Omit<ComponentProps<'select'>, 'size' | 'children'> & Size & { readonly options: readonly Option[] }

/** The browser's own list: it works with every keyboard, screen reader and thumb. */
export function Select({ options, className, size, ...rest }: SelectProps) {
  return (
    <select {...rest} className={`${styles.input} ${className ?? ''}`} data-size={size}>
      {options.map((option) => {
        const { value, label } = typeof option === 'string' ? { value: option, label: option } : option
        return (
          <option key={value} value={value}>
            {label}
          </option>
        )
      })}
    </select>
  )
}

type CheckboxProps = Omit<ComponentProps<'input'>, 'type'> & { readonly label: ReactNode }

export function Checkbox({ label, ...rest }: CheckboxProps) {
  return (
    <label className={styles.check}>
      <input {...rest} type="checkbox" />
      <span>{label}</span>
    </label>
  )
}

export function TextField({ label, note, hint, error, ...input }: Around & Omit<ComponentProps<'input'>, 'size'>) {
  return (
    <Field label={label} note={note} hint={hint} error={error}>
      {(attributes) => <Input {...input} {...attributes} />}
    </Field>
  )
}

/** Takes the files that were chosen out of the input, so that the same ones can be chosen again, corrected. */
export function takeFiles(input: HTMLInputElement): readonly File[] {
  const files = [...(input.files ?? [])]
  input.value = ''
  return files
}
