import { useQuery } from '@tanstack/react-query'
import { Download } from 'lucide-react'
import { useState } from 'react'
import { Button } from '../../ui/button.tsx'
import { ConfirmDialog } from '../../ui/dialog.tsx'
import { Checkbox, TextField } from '../../ui/field.tsx'
import { Loading, Note, Problem } from '../../ui/states.tsx'
import { Badge } from '../../ui/table.tsx'
import { notify, notifyWarning } from '../../ui/toast.tsx'
import {
  type Change,
  download,
  type Finding,
  holdsData,
  lossesOf,
  migrationOf,
  type Preview,
  previewQuery,
  runChange,
  warningsOf,
} from './changes.ts'
import styles from './schema.module.css'

type ReviewProps = { readonly change: Change; readonly onClose: () => void; readonly onDone: () => void }

/** Shows what a change would lose, stop and execute, before it does; or gives it as a migration instead. */
export function Review({ change, onClose, onDone }: ReviewProps) {
  const [isMeant, setMeant] = useState(false)
  const { data, error, refetch } = useQuery(previewQuery(change))
  const isLossy = data !== undefined && holdsData(data)
  const isNothing = data !== undefined && data.changes.length === 0
  return (
    <ConfirmDialog
      isOpen
      onClose={onClose}
      size="l"
      title={change.title}
      action={change.action}
      isDangerous={data !== undefined && (isLossy || data.dropped.length > 0)}
      isDisabled={data === undefined || error !== null || isNothing || (isLossy && !isMeant)}
      onConfirm={async () => {
        let warnings: readonly string[]
        try {
          warnings = await runChange(change, data!)
        } catch (failure) {
          void refetch()
          throw failure
        }
        if (warnings.length === 0) notify(change.done)
        else notifyWarning(change.done, warnings.join(' · '))
        onDone()
      }}
    >
      <div className={styles.review} data-review>
        {error !== null && <Problem error={error} onRetry={() => void refetch()} />}
        {error === null && data === undefined && <Loading lines={4} label="Working out the statements" />}
        {isNothing && <Note>Nothing changes.</Note>}
        {data !== undefined && error === null && !isNothing && (
          <>
            <Losses preview={data} />
            <Warnings warnings={warningsOf(data)} />
            {isLossy && (
              <Checkbox
                label="I know that this is lost for good"
                checked={isMeant}
                onChange={({ target }) => setMeant(target.checked)}
              />
            )}
            <Findings findings={data.findings} />
            <Statements preview={data} />
            {change.canBeMigration !== false && <AsMigration change={change} />}
          </>
        )}
      </div>
    </ConfirmDialog>
  )
}

function Losses({ preview }: { readonly preview: Preview }) {
  const losses = lossesOf(preview)
  if (losses.length === 0) return null
  return (
    <section aria-label="What is lost">
      <Note kind="warning">
        <strong>This is lost:</strong>
        <ul className={styles.bullets}>
          {losses.map((loss) => (
            <li key={loss}>{loss}</li>
          ))}
        </ul>
      </Note>
    </section>
  )
}

function Warnings({ warnings }: { readonly warnings: readonly string[] }) {
  if (warnings.length === 0) return null
  return (
    <section aria-label="Warnings">
      <Note kind="warning">
        <ul className={styles.bullets}>
          {warnings.map((warning) => (
            <li key={warning}>{warning}</li>
          ))}
        </ul>
      </Note>
    </section>
  )
}

function Findings({ findings }: { readonly findings: readonly Finding[] }) {
  return (
    <section className={styles.part} aria-label="What waits meanwhile">
      <h3>What waits meanwhile</h3>
      {findings.length === 0 && <p>No statement makes readers or writers wait for long.</p>}
      <ul className={styles.findings}>
        {findings.map((finding, place) => (
          <li key={`${finding.rule} ${finding.object} ${String(place)}`}>
            <span className={styles.finding}>
              <code>{finding.object}</code>
              <Badge tone="warn">{finding.lock === 'none' ? finding.rule : `lock: ${finding.lock}`}</Badge>
            </span>
            <span>{finding.why}</span>
            <small>Safer: {finding.safeWay}</small>
          </li>
        ))}
      </ul>
    </section>
  )
}

/** The statements that keep the log say nothing about the change, and are shown to those who ask. */
function Statements({ preview: { sql, changes } }: { readonly preview: Preview }) {
  const words: Readonly<Record<string, string>> = { create: 'new', update: 'changed', delete: 'deleted' }
  const own = sql.filter((statement) => !isOfLog(statement))
  const ofLog = sql.filter(isOfLog)
  return (
    <section className={styles.part} aria-label="Statements">
      <h3>Statements</h3>
      <p>{changes.map(({ collection, change }) => `${collection}: ${words[change] ?? change}`).join(', ')}</p>
      {own.length === 0 ? <p>Tables stay as they are.</p> : <Sql statements={own} />}
      {ofLog.length > 0 && (
        <details>
          <summary>{ofLog.length} statements for the triggers of the log</summary>
          <Sql statements={ofLog} />
        </details>
      )}
    </section>
  )
}

const isOfLog = (statement: string): boolean => /^\s*(create|drop)\b[^"]*\bsvc_log\b|^[^\n]*"svc_log_/.test(statement)

function Sql({ statements }: { readonly statements: readonly string[] }) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by the keyboard
    <pre className={styles.sql} tabIndex={0}>
      {statements.map((statement) => `${statement.trim()};`).join('\n\n')}
    </pre>
  )
}

/** The change as a file, for installations that are changed by migrations. */
function AsMigration({ change }: { readonly change: Change }) {
  const [name, setName] = useState('')
  const [error, setError] = useState<unknown>()
  const [isBusy, setBusy] = useState(false)
  const save = async () => {
    setBusy(true)
    setError(undefined)
    try {
      const { file, text } = await migrationOf(change, name.trim())
      download(file, text, 'text/typescript')
    } catch (failure) {
      setError(failure)
    } finally {
      setBusy(false)
    }
  }
  return (
    <details className={styles.part}>
      <summary>Write it as a migration instead</summary>
      <div className={styles.migration}>
        <TextField
          label="Name of the migration"
          hint="The file belongs in the folder of migrations (MIGRATIONS_DIR); “migrate run” makes the change there. Nothing changes now."
          placeholder="add price"
          value={name}
          onChange={({ target }) => setName(target.value)}
        />
        <Button isBusy={isBusy} disabled={name.trim() === ''} onClick={() => void save()}>
          <Download aria-hidden="true" /> Download
        </Button>
      </div>
      {error !== undefined && <Problem error={error} />}
    </details>
  )
}
