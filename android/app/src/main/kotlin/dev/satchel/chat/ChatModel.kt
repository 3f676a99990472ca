package dev.satchel.chat

import android.app.Application
import android.net.Uri
import androidx.compose.runtime.getValue
import androidx.compose.runtime.mutableStateListOf
import androidx.compose.runtime.mutableStateOf
import androidx.compose.runtime.setValue
import androidx.lifecycle.AndroidViewModel
import androidx.lifecycle.viewModelScope
import dev.satchel.Model
import dev.satchel.Options
import dev.satchel.SatchelException
import dev.satchel.Session
import dev.satchel.stream
import java.io.File
import java.io.IOException
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.Job
import kotlinx.coroutines.launch
import kotlinx.coroutines.withContext

data class Message(val fromUser: Boolean, val text: String)

/** The conversation, and the program that answers. */
class ChatModel(application: Application) : AndroidViewModel(application) {
    val messages = mutableStateListOf<Message>()
    var status by mutableStateOf("Choose a .satchel file.")
        private set
    var ready by mutableStateOf(false)
        private set
    var answering by mutableStateOf(false)
        private set

    private var model: Model? = null
    private var session: Session? = null
    private var answer: Job? = null

    /** Copies the file into the app's folder, where it can be mapped, and opens it. */
    fun open(source: Uri) = viewModelScope.launch {
        ready = false
        status = "Reading…"
        try {
            val file = withContext(Dispatchers.IO) { copy(source) }
            val opened = withContext(Dispatchers.IO) { Model.open(file.path, 0, 0, true) }
            close()
            model = opened
            session = opened.session()
            messages.clear()
            status = "${file.length() / 1_000_000} MB, ${opened.context()} tokens of context"
            ready = true
        } catch (error: SatchelException) {
            status = "${error.message}. ${error.advice}"
        } catch (error: IOException) {
            status = error.message ?: "The file cannot be read."
        }
    }

    fun send(text: String) {
        val current = session ?: return
        messages += Message(true, text)
        messages += Message(false, "")
        val place = messages.lastIndex
        answering = true
        answer = viewModelScope.launch {
            try {
                current.stream(text, Options().slide(true)) { stats ->
                    val first = "%.0f ms".format(stats.timeToFirstToken * 1000)
                    val speed = "%.1f tok/s".format(stats.decodeTokensPerSecond())
                    status = "first token after $first, then $speed"
                }.collect { piece ->
                    messages[place] = messages[place].copy(text = messages[place].text + piece)
                }
            } catch (error: SatchelException) {
                status = "${error.message}. ${error.advice}"
            } finally {
                answering = false
            }
        }
    }

    fun stop() = answer?.cancel()

    private fun copy(source: Uri): File {
        val target = File(getApplication<Application>().filesDir, "model.satchel")
        val part = File(target.path + ".part")
        val input = getApplication<Application>().contentResolver.openInputStream(source)
            ?: throw IOException("The file cannot be opened.")
        input.use { from -> part.outputStream().use { to -> from.copyTo(to, 1 shl 20) } }
        if (!part.renameTo(target)) throw IOException("There is no room for the file.")
        return target
    }

    private fun close() {
        session?.close()
        model?.close()
    }

    override fun onCleared() = close()
}
