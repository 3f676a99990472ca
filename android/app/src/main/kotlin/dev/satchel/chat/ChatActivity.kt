package dev.satchel.chat

import android.os.Bundle
import androidx.activity.ComponentActivity
import androidx.activity.compose.rememberLauncherForActivityResult
import androidx.activity.compose.setContent
import androidx.activity.result.contract.ActivityResultContracts
import androidx.activity.viewModels
import androidx.compose.foundation.layout.Arrangement
import androidx.compose.foundation.layout.Column
import androidx.compose.foundation.layout.Row
import androidx.compose.foundation.layout.fillMaxSize
import androidx.compose.foundation.layout.fillMaxWidth
import androidx.compose.foundation.layout.padding
import androidx.compose.foundation.layout.safeDrawingPadding
import androidx.compose.foundation.lazy.LazyColumn
import androidx.compose.foundation.lazy.items
import androidx.compose.material3.Button
import androidx.compose.material3.Card
import androidx.compose.material3.MaterialTheme
import androidx.compose.material3.OutlinedTextField
import androidx.compose.material3.Text
import androidx.compose.runtime.Composable
import androidx.compose.runtime.getValue
import androidx.compose.runtime.mutableStateOf
import androidx.compose.runtime.saveable.rememberSaveable
import androidx.compose.runtime.setValue
import androidx.compose.ui.Alignment
import androidx.compose.ui.Modifier
import androidx.compose.ui.unit.dp

class ChatActivity : ComponentActivity() {
    private val chat: ChatModel by viewModels()

    override fun onCreate(savedInstanceState: Bundle?) {
        super.onCreate(savedInstanceState)
        setContent { MaterialTheme { ChatScreen(chat) } }
    }
}

@Composable
fun ChatScreen(chat: ChatModel) {
    val choose = rememberLauncherForActivityResult(ActivityResultContracts.OpenDocument()) { uri ->
        if (uri != null) chat.open(uri)
    }
    var text by rememberSaveable { mutableStateOf("") }
    Column(Modifier.fillMaxSize().safeDrawingPadding().padding(12.dp)) {
        Row(verticalAlignment = Alignment.CenterVertically) {
            Button(onClick = { choose.launch(arrayOf("*/*")) }) { Text("Open") }
            Text(chat.status, Modifier.padding(start = 12.dp))
        }
        LazyColumn(
            Modifier.weight(1f).fillMaxWidth().padding(vertical = 8.dp),
            verticalArrangement = Arrangement.spacedBy(8.dp),
        ) {
            items(chat.messages) { message ->
                val side = if (message.fromUser) Modifier.padding(start = 48.dp) else Modifier
                Card(side.fillMaxWidth()) { Text(message.text, Modifier.padding(12.dp)) }
            }
        }
        Row(verticalAlignment = Alignment.CenterVertically) {
            OutlinedTextField(text, { text = it }, Modifier.weight(1f), enabled = chat.ready)
            Button(
                onClick = {
                    if (chat.answering) {
                        chat.stop()
                    } else if (text.isNotBlank()) {
                        chat.send(text)
                        text = ""
                    }
                },
                Modifier.padding(start = 8.dp),
                enabled = chat.ready,
            ) { Text(if (chat.answering) "Stop" else "Send") }
        }
    }
}
